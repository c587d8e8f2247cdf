-- Burns CPU in functions called in different ways, each in one known chain, and accounts for its time. With the argument `interpreted`,
-- nothing is compiled; otherwise only `burn` is, in most ways.
local SLICE = 0.02

-- Seconds in innermost functions.
local burned = 0

local function burn(factor) -- burns
    local start = os.clock() -- burns
    local now = start -- burns
    local number = 0 -- burns
    while now < start + SLICE * (factor or 1) do -- burns
        for step = 1, 2000 do -- burns
            number = number + step % 3 -- burns
        end -- burns
        now = os.clock() -- burns
    end -- burns
    burned = burned + now - start -- burns
    return 1 -- burns
end -- burns

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

local kept = {}

local function by_load()
    local loaded = loadstring('local burn = ... burn()', '=loaded')
    loaded(burn) -- calls
    -- Long enough to read its name on a busy machine.
    kept[#kept % 1000 + 1] = loaded
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

local function short(one, other) -- burns
    return one < other -- burns
end -- burns

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

local unix_ns = function()
    return 0
end
local clock = os.getenv('PROFCOL_TEST_CLOCK')
if clock then
    clock = io.open(clock, 'w')
    clock:setvbuf('line')
    local ffi = require('ffi')
    ffi.cdef('typedef struct { int64_t s, ns; } time; int clock_gettime(int, time *);')
    local time = ffi.new('time')
    unix_ns = function()
        ffi.C.clock_gettime(0, time)
        return time.s * 1000000000LL + time.ns
    end
end

-- Before a chain.
local before, start, cpu

local function begin()
    before, start, cpu = burned, unix_ns(), os.clock()
end

local function finish(way)
    local used, stop = os.clock() - cpu, unix_ns()
    if clock then
        local text = function(number) return (tostring(number):gsub('LL', '')) end
        local leaf = way == 'by_callbacks' and '?' or string.format('%.0f', (burned - before) * 1e9)
        clock:write(way, ' ', text(start), ' ', text(stop), string.format(' %.0f ', used * 1e9), leaf, '\n')
    end
end

local function main(seconds, mode)
    if mode == 'interpreted' then
        jit.off()
    end
    local limit = os.time() + seconds
    while os.time() < limit do
        begin()
        by_call() -- calls
        finish('by_call')
        begin()
        by_recursion() -- calls
        finish('by_recursion')
        begin()
        by_closure() -- calls
        finish('by_closure')
        begin()
        by_tail_call() -- calls
        finish('by_tail_call')
        begin()
        by_variadic() -- calls
        finish('by_variadic')
        begin()
        by_sort() -- calls
        finish('by_sort')
        begin()
        by_gsub() -- calls
        finish('by_gsub')
        begin()
        by_pcall() -- calls
        finish('by_pcall')
        begin()
        by_error() -- calls
        finish('by_error')
        begin()
        by_handler() -- calls
        finish('by_handler')
        begin()
        by_coroutine() -- calls
        finish('by_coroutine')
        begin()
        by_nested_coroutines() -- calls
        finish('by_nested_coroutines')
        begin()
        by_sort_in_coroutine() -- calls
        finish('by_sort_in_coroutine')
        begin()
        by_method() -- calls
        finish('by_method')
        begin()
        by_add() -- calls
        finish('by_add')
        begin()
        by_less() -- calls
        finish('by_less')
        begin()
        by_object() -- calls
        finish('by_object')
        begin()
        by_index() -- calls
        finish('by_index')
        begin()
        by_new_index() -- calls
        finish('by_new_index')
        begin()
        by_concat() -- calls
        finish('by_concat')
        begin()
        by_text() -- calls
        finish('by_text')
        begin()
        by_iterator() -- calls
        finish('by_iterator')
        begin()
        by_load() -- calls
        finish('by_load')
        begin()
        by_reader() -- calls
        finish('by_reader')
        begin()
        by_callbacks() -- calls
        finish('by_callbacks')
    end
end

main(tonumber(arg[1]), arg[2]) -- calls
