# Burns CPU in functions called in different ways, each in one known chain, and accounts for its time.
package main;

use strict;
use warnings;
use utf8;
use Digest::SHA ();
use List::Util qw(first reduce);
use Time::HiRes qw(clock time);

my $SLICE = 0.02;
# Seconds in innermost functions.
my $burned = 0;

sub burn { # burns
    my $start = clock(); # burns
    my $now = $start; # burns
    while ($now < $start + $SLICE * ($_[0] // 1)) { # burns
        for my $number (1 .. 2000) { # burns
        } # burns
        $now = clock(); # burns
    } # burns
    $burned += $now - $start; # burns
    return 1; # burns
} # burns

sub by_call {
    middle(); # calls
}

sub middle {
    inner(); # calls
}

sub inner {
    burn(); # calls
}

sub recurse {
    my ($depth) = @_;
    if ($depth == 0) { # calls
        burn(); # calls
    } else {
        recurse($depth - 1); # calls
    }
}

sub by_recursion {
    recurse(30); # calls
}

sub by_anonymous {
    my $by = 1;
    my $function = sub { burn($by) }; # calls
    $function->(); # calls
}

sub compare {
    burn(); # calls
    return $a <=> $b;
}

sub by_sort {
    my @sorted = sort compare 2, 1; # calls
}

sub by_sort_block {
    my @sorted = sort { burn(); $a <=> $b } 2, 1; # calls
}

sub by_sort_tail {
    my @sorted = sort { burn() } 2, 1; # calls
}

sub by_map {
    my @mapped = map { burn() } 1; # calls
}

sub by_grep {
    my @found = grep { burn() } 1; # calls
}

sub by_first {
    my $found = first { burn() } 1; # calls
}

sub by_reduce {
    my $sum = reduce { burn(); $a + $b } 1, 2; # calls
}

sub by_substitution {
    (my $text = 'a') =~ s/a/burn()/e; # calls
}

sub by_pattern {
    'a' =~ /a(?{ burn() })/; # calls
}

sub by_block {
    eval { burn() }; # calls
}

sub fail {
    die "failed\n"; # calls
}

sub by_exception {
    eval { fail(); 1 } or burn(); # calls
}

sub by_string {
    eval 'burn()'; # calls
}

sub replaced {
    goto &inner; # calls
}

sub by_replaced {
    replaced(); # calls
}

package Made {
    use overload
        '+' => \&add,
        '""' => sub { main::burn(); 'made' }, # calls
        '<=>' => sub { main::burn(); 0 }; # calls

    our $AUTOLOAD;

    sub new { bless {}, shift }

    sub add {
        main::burn(); # calls
        return 1;
    }

    sub make {
        main::burn(); # calls
    }

    sub AUTOLOAD {
        return if $AUTOLOAD =~ /DESTROY/;
        main::burn(); # calls
    }

    sub TIESCALAR { bless {}, shift }

    sub FETCH {
        main::burn(); # calls
    }
}

package Derived {
    our @ISA = 'Made';

    sub make {
        my $self = shift;
        $self->SUPER::make(); # calls
    }
}

package Closed {
    sub new { bless {}, shift }

    sub DESTROY {
        main::burn(); # calls
    }
}

sub by_method {
    Derived->new->make; # calls
}

sub by_autoload {
    Made->new->anything; # calls
}

sub by_overload {
    my $sum = Made->new + 1; # calls
}

sub by_text {
    my $text = 'a' . Made->new; # calls
}

sub by_sort_overload {
    my @sorted = sort { $a <=> $b } Made->new, Made->new; # calls
}

sub by_tie {
    tie my $value, 'Made'; # calls
    my $copy = $value; # calls
}

sub by_destructor {
    my $closed = Closed->new; # calls
    undef $closed; # calls
}

sub by_signal {
    local $SIG{USR1} = sub { burn() }; # calls
    kill USR1 => $$; # calls
    return; # calls
}

sub by_warning {
    local $SIG{__WARN__} = sub { burn() }; # calls
    warn "warned\n"; # calls
}

# An eval inside of a function that C called: it runs in a loop of its own.
sub guarded {
    eval { burn(0.5) }; # calls
    burn(0.5); # calls
    return 0;
}

sub by_guard {
    my @sorted = sort guarded 2, 1; # calls
}

sub by_name {
    no strict 'refs';
    &{'inner'}(); # calls
}

sub by_größe {
    burn(); # calls
}

# Short functions, which are mostly being entered or left.
sub by_callbacks {
    my $limit = clock() + $SLICE;
    my @numbers = (1 .. 100);
    while (clock() < $limit) {
        my @sorted = sort { $b <=> $a or 0 } @numbers; # calls
        my $sum = reduce { short($a) + $b } @numbers; # calls
    }
}

sub short { return $_[0] & 1 } # burns

sub by_overloads {
    my $limit = clock() + $SLICE;
    my $number = Number->new;
    while (clock() < $limit) {
        my $sum = $number + 1; # calls
    }
}

package Number {
    use overload '+' => sub { return 1 }; # burns as __ANON__

    sub new { bless {}, shift }
}

my $data = 'x' x (1 << 20);

sub by_checksum { # burns
    my $start = clock(); # burns
    my $now = $start; # burns
    while ($now < $start + $SLICE) { # burns
        Digest::SHA::sha256($data); # burns
        $now = clock(); # burns
    } # burns
    $burned += $now - $start; # burns
} # burns

my $clock;
if (my $path = $ENV{PROFCOL_TEST_CLOCK}) {
    open $clock, '>:utf8', $path or die;
    $clock->autoflush;
}

sub main {
    my ($seconds) = @_;
    my @ways = sort grep { /^by_/ && main->can($_) } keys %main::;
    my $end = time + $seconds;
    while (time < $end) {
        for my $way (@ways) {
            my ($before, $start, $cpu) = ($burned, time, clock());
            main->can($way)->(); # calls
            my ($used, $stop) = (clock() - $cpu, time);
            my $leaf = $way =~ /by_callbacks|by_overloads/ ? '?' : sprintf '%.0f', ($burned - $before) * 1e9;
            printf $clock "%s %.0f %.0f %.0f %s\n", $way, $start * 1e9, $stop * 1e9, $used * 1e9, $leaf if $clock;
        }
    }
}

main($ARGV[0] // 1); # calls
