-- Burns CPU below as many functions as the first argument says, for as many seconds as the second.

local function descend(depth, limit)
    if depth > 0 then
        return descend(depth - 1, limit) + 1
    end
    local total = 0
    while os.time() < limit do
        for step = 1, 1000 do
            total = total + step * step
        end
    end
    return total
end

descend(tonumber(arg[1]), os.time() + tonumber(arg[2]))
