<?php
// Burns CPU in functions called in different ways, each in one known chain, and accounts for its time.

const SLICE = 20_000_000;
// In innermost functions.
$burned = 0;

function cpu_ns($used) {
    $seconds = $used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'];
    return ($seconds * 1_000_000 + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']) * 1000;
}

function burn() { // burns
    global $burned; // burns
    $before = getrusage(); // burns
    $limit = hrtime(true) + SLICE; // burns
    while (hrtime(true) < $limit) { // burns
        for ($number = 0; $number < 2000; $number++) { // burns
        } // burns
    } // burns
    $burned += cpu_ns(getrusage()) - cpu_ns($before); // burns
} // burns

function by_call() {
    middle(); // calls
}

function middle() {
    inner(); // calls
}

function inner() {
    burn(); // calls
}

// Before PHP 8, something else would be at its address before its name is read.
function kept($by, $closure) {
    if (PHP_VERSION_ID < 80000) {
        $GLOBALS[$by] = $closure;
    }
    return $closure;
}

function by_map() {
    array_map(kept('by_map', function ($_) { // calls
        burn(); // calls
    }), [1]); // calls before PHP 8
}

function by_sort() {
    $numbers = [2, 1];
    usort($numbers, 'compare'); // calls
}

function compare($left, $right) {
    burn(); // calls
    return $left <=> $right;
}

function by_replace() {
    preg_replace_callback('/a/', 'replace', 'a'); // calls
}

function replace($found) {
    burn(); // calls
    return 'b';
}

function recurse($depth) {
    if ($depth == 0) {
        burn(); // calls
    } else {
        recurse($depth - 1); // calls
    }
}

function by_recursion() {
    recurse(30); // calls
}

function generate() {
    burn(); // calls
    yield 1;
}

function by_generator() {
    foreach (generate() as $_) { // calls
    }
}

function by_generator_from_c() {
    iterator_to_array(generate()); // calls
}

class Base {
    public function method() {
        burn(); // calls
    }
}

class Derived extends Base implements IteratorAggregate {
    public function method() {
        parent::method(); // calls
    }

    public static function make() {
        burn(); // calls
    }

    public function __call($name, $arguments) {
        burn(); // calls
    }

    public function __get($name) {
        burn(); // calls
    }

    public function __toString(): string {
        burn(); // calls
        return 'made';
    }

    public function getIterator(): Iterator {
        burn(); // calls
        return new ArrayIterator([]);
    }
}

class Closed {
    public function __destruct() {
        burn(); // calls
    }
}

function by_method() {
    (new Derived)->method(); // calls
}

function by_static() {
    Derived::make(); // calls
}

function by_magic_call() {
    (new Derived)->anything(); // calls
}

function by_magic_get() {
    (new Derived)->anything; // calls
}

function by_string() {
    $text = 'a' . new Derived; // calls
}

function by_iterator() {
    foreach (new Derived as $_) { // calls
    }
}

function by_destructor() {
    $closed = new Closed;
    unset($closed); // calls
}

function by_closure() {
    $closure = fn() => burn(); // calls
    kept('by_closure', $closure)(); // calls
}

function by_name() {
    call_user_func_array('inner', []); // calls
}

function by_reflection() {
    (new ReflectionFunction('inner'))->invoke(); // calls
}

function by_exception() {
    try {
        throw new Exception;
    } catch (Exception $_) {
        burn(); // calls
    } finally {
    }
}

function by_eval() {
    eval('burn();'); // calls
}

function by_größe() {
    burn(); // calls
}

// Short functions, which are mostly being entered or left.
function by_callbacks() { // burns
    $limit = hrtime(true) + SLICE; // burns
    while (hrtime(true) < $limit) { // burns
        array_map(fn($number) => $number + 1, NUMBERS); // calls, burns as a {closure} of by_callbacks
    } // burns
} // burns

define('NUMBERS', range(1, 100));

function by_hash() { // burns
    global $burned; // burns
    $before = getrusage(); // burns
    $limit = hrtime(true) + SLICE; // burns
    while (hrtime(true) < $limit) { // burns
        hash('sha256', DATA); // burns
    } // burns
    $burned += cpu_ns(getrusage()) - cpu_ns($before); // burns
} // burns

define('DATA', str_repeat('x', 1 << 20));

// It has a stack of its own.
function by_fiber() {
    burn(); // calls
}

function in_fiber() {
    $fiber = new Fiber(function () {
        by_fiber(); // calls
    });
    $fiber->start(); // calls
}

function unix_ns() {
    return number_format(microtime(true) * 1_000_000, 0, '', '') . '000';
}

function main($limit, $ways) {
    global $burned;
    $clock = getenv('PROFCOL_TEST_CLOCK') ? fopen(getenv('PROFCOL_TEST_CLOCK'), 'w') : null;
    while (microtime(true) < $limit) {
        foreach ($ways as $way) {
            [$before, $start, $cpu] = [$burned, unix_ns(), cpu_ns(getrusage())];
            $way(); // calls
            [$used, $stop] = [cpu_ns(getrusage()) - $cpu, unix_ns()];
            $leaf = $way == 'by_callbacks' ? '?' : $burned - $before;
            if ($clock) {
                fwrite($clock, str_replace('in_', 'by_', $way) . " $start $stop $used $leaf\n");
            }
        }
    }
}

$ways = array_filter(get_defined_functions()['user'], fn($name) => preg_match('/^(by|in)_/', $name));
$inner = class_exists('Fiber') ? ['by_fiber'] : ['by_fiber', 'in_fiber'];
main(microtime(true) + (float) $argv[1], array_diff($ways, $inner)); // calls
