# Burns CPU below as many functions as the first argument says, for as many seconds as the second.

use strict;
use warnings;
no warnings 'recursion';
use Time::HiRes 'time';

sub descend {
    my ($depth, $until) = @_;
    return descend($depth - 1, $until) + 1 if $depth > 0;
    my $total = 0;
    while (time < $until) {
        $total += $_ * $_ for 1 .. 1000;
    }
    return $total;
}

descend($ARGV[0], time + $ARGV[1]);
