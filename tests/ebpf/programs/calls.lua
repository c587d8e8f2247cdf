-- Burns CPU in functions called in different ways, each in one known chain. With the argument `interpreted`,
-- nothing is compiled; otherwise only `burn` is, in most ways.
local SLICE = 0.02

local function burn(factor)
    local limit = os.clock() + SLICE * (factor or 1)
    local number = 0
    while os.clock() < limit do
        for step = 1, 2000 do
            number = number + step % 3
        end
    end
    return 1
end

local function inner()
    local result = burn() -- calls
    return result
end

local function middle()
    local result = inner() -- calls
    return result
end

local function by_call()
    middle() -- calls
end

local function recurse(depth)
    if depth == 0 then
        burn() -- calls
    else
        recurse(depth - 1) -- calls
    end
    return depth
end

local function by_recursion()
    recurse(30) -- calls
end

local function by_closure()
    local factor = 1
    local function closure()
        burn(factor) -- calls
    end
    closure() -- calls
end

local function tail()
    return inner() -- calls
end

-- The tail call replaces `tail`.
local function by_tail_call()
    tail() -- calls
end

local function variadic(...)
    burn(select('#', ...)) -- calls
end

local function by_variadic()
    variadic(1) -- calls
end

local function compare(one, other)
    burn() -- calls
    return one < other
end

local function by_sort()
    table.sort({2, 1}, compare) -- calls
end

local function replace(text)
    burn() -- calls
    return text
end

local function by_gsub()
    string.gsub('a', 'a', replace) -- calls
end

local function by_pcall()
    pcall(inner) -- calls
end

local function fail()
    error('failed') -- calls
end

local function handle(message)
    burn() -- calls
    return message
end

-- The handler runs above the function that failed, so this catches first.
local function by_error()
    if not pcall(fail) then
        burn() -- calls
    end
end

local function handled()
    fail() -- calls
    return 1
end

local function by_handler()
    xpcall(handled, handle) -- calls
end

local function in_coroutine()
    burn(0.5) -- calls
    coroutine.yield(1)
    burn(0.5) -- calls
end

local function by_coroutine()
    local thread = coroutine.create(in_coroutine)
    coroutine.resume(thread) -- calls
    coroutine.resume(thread) -- calls
end

local function nested()
    local wrapped = coroutine.wrap(middle)
    wrapped() -- calls
end

local function by_nested_coroutines()
    local wrapped = coroutine.wrap(nested)
    wrapped() -- calls
end

local function sort_inside()
    table.sort({2, 1}, compare) -- calls
end

local function by_sort_in_coroutine()
    coroutine.wrap(sort_inside)() -- calls
end

local Account = {}
Account.__index = Account

function Account:deposit()
    burn() -- calls
end

local function by_method()
    local account = setmetatable({}, Account)
    account:deposit() -- calls
end

function Account.__add(one, other)
    burn() -- calls
    return one
end

local function by_add()
    local sum = setmetatable({}, Account) + 1 -- calls
    return sum
end

function Account.__lt(one, other)
    burn() -- calls
    return true
end

local function by_less()
    local account = setmetatable({}, Account)
    if account < account then -- calls
        return 1
    end
end

function Account.__call()
    burn() -- calls
end

local function by_object()
    local account = setmetatable({}, Account)
    account() -- calls
end

local Lazy = {}

function Lazy.__index(object, key)
    burn() -- calls
    return key
end

local function by_index()
    local value = setmetatable({}, Lazy).value -- calls
    return value
end

function Lazy.__newindex(object, key)
    burn() -- calls
end

local function by_new_index()
    local object = setmetatable({}, Lazy)
    object.value = 1 -- calls
end

function Lazy.__concat(one, other)
    burn() -- calls
    return 'a'
end

local function by_concat()
    local text = setmetatable({}, Lazy) .. 'a' -- calls
    return text
end

function Lazy.__tostring()
    burn() -- calls
    return 'a'
end

local function by_text()
    tostring(setmetatable({}, Lazy)) -- calls
end

local function iterate(limit, number)
    if number < limit then
        burn() -- calls
        return number + 1
    end
end

local function by_iterator()
    for number in iterate, 1, 0 do -- calls
    end
end

local function by_load()
    local loaded = loadstring('local burn = ... burn()', '=loaded')
    loaded(burn) -- calls
end

local function by_reader()
    local first = true
    load(function() -- calls
        if first then
            first = false
            burn() -- calls
            return 'return 1'
        end
    end)
end

local function short(one, other)
    return one < other
end

local function by_callbacks()
    local limit = os.clock() + SLICE
    local numbers = {}
    while os.clock() < limit do
        for number = 1, 50 do
            numbers[number] = number * 7919 % 101
        end
        table.sort(numbers, short) -- calls
    end
end


local function main(seconds, mode)
    if mode == 'interpreted' then
        jit.off()
    end
    local limit = os.time() + seconds
    while os.time() < limit do
        by_call() -- calls
        by_recursion() -- calls
        by_closure() -- calls
        by_tail_call() -- calls
        by_variadic() -- calls
        by_sort() -- calls
        by_gsub() -- calls
        by_pcall() -- calls
        by_error() -- calls
        by_handler() -- calls
        by_coroutine() -- calls
        by_nested_coroutines() -- calls
        by_sort_in_coroutine() -- calls
        by_method() -- calls
        by_add() -- calls
        by_less() -- calls
        by_object() -- calls
        by_index() -- calls
        by_new_index() -- calls
        by_concat() -- calls
        by_text() -- calls
        by_iterator() -- calls
        by_load() -- calls
        by_reader() -- calls
        by_callbacks() -- calls
    end
end

main(tonumber(arg[1]), arg[2]) -- calls
