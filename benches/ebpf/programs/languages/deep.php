<?php
// Burns CPU below as many functions as the first argument says, for as many seconds as the second.

function descend(int $depth, float $until): float
{
    if ($depth > 0) {
        return descend($depth - 1, $until) + 1;
    }
    $total = 0.0;
    while (microtime(true) < $until) {
        for ($step = 0; $step < 1000; $step++) {
            $total += $step * $step;
        }
    }
    return $total;
}

descend((int) $argv[1], microtime(true) + (float) $argv[2]);
