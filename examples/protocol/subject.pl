#!/usr/bin/env perl
# A subject in another language: token_kl in Perl, core modules only. The frames are those of docs/protocol.md.
use strict; use warnings; use JSON::PP;
binmode $_ for *STDIN, *STDOUT;
$| = 1;
my %type = ('<f4' => ['f<', 4], '<f8' => ['d<', 8], '|b1' => ['C', 1], '<i8' => ['q<', 8]);    # dtype: pack, bytes

sub take {    # exactly this many bytes; the judge closing the pipe is the end
    my ($size) = @_;
    my $data = '';
    while (length($data) < $size) { read(STDIN, $data, $size - length($data), length($data)) or exit 0 }
    return $data;
}

sub receive {    # a frame: its body, and the arrays for which {"$array": n} stands
    my ($magic, $size) = unpack('a4 V', take(8));
    my $header = decode_json(take($size));
    my @arrays;
    for my $buffer (@{ $header->{buffers} }) {
        my ($code, $bytes) = @{ $type{ $buffer->{dtype} } or die "dtype $buffer->{dtype} is not for me" };
        my $count = 1;
        $count *= $_ for @{ $buffer->{shape} };
        push @arrays, { %$buffer, values => [unpack("($code)*", take($count * $bytes))] };
    }
    return ($header->{body}, @arrays);
}

sub answer {    # a body, and arrays of {dtype, shape, values}
    my ($body, @arrays) = @_;
    my @buffers = map { { dtype => $_->{dtype}, shape => $_->{shape} } } @arrays;
    my $header = encode_json({ body => $body, buffers => \@buffers });
    print pack('a4 V', 'GATE', length $header), $header;
    print pack("($type{ $_->{dtype} }[0])*", @{ $_->{values} }) for @arrays;
}

sub kl {    # of one token: k1 = -d, k2 = d^2/2, k3 = exp(d) - d - 1 with d = reference - policy
    my ($estimator, $policy, $reference) = @_;
    my $d = $reference - $policy;
    return $estimator eq 'k1' ? -$d : $d * $d / 2 if $estimator ne 'k3';
    my $lost = ($reference - ($d - ($d - $reference))) - ($policy + ($d - $reference));    # what rounding d left out
    return exp($d) - $d - 1 + (exp($d) - 1) * $lost if abs($d) > 0.5;
    my ($term, $sum) = ($d, (exp($d) - 1) * $lost);    # near 0 its series: the difference would lose every digit
    $sum += $term *= $d / $_ for 2 .. 18;
    return $sum;
}

receive();    # the start: which protocol, which settings
my %choices = (estimator => ['k1', 'k2', 'k3'], reduction => ['none'], kl_ratio => ['none']);
answer({ kind => 'ready', provides => { token_kl => \%choices }, versions => { perl => "$^V" } });
while (my ($call, @arrays) = receive()) {
    my ($in, %common) = ($call->{inputs}, (id => $call->{id}));
    if ($call->{op} ne 'token_kl' or %{ $call->{layout} } or $in->{lengths} or $in->{reduction} ne 'none') {
        answer({ %common, kind => 'unsupported', error => 'only token_kl per token, with a mask or without' });
        next;
    }
    my ($p, $r, $mask) = map { $in->{$_} ? $arrays[$in->{$_}{'$array'}] : undef } qw(policy reference mask);
    my @kl = map { $mask && !$mask->{values}[$_] ? 0 : kl($in->{estimator}, $p->{values}[$_], $r->{values}[$_]) }
        0 .. $#{ $p->{values} };
    answer({ %common, kind => 'value', value => { kl => { '$array' => 0 } }, seconds => 0 }, { %$p, values => \@kl });
}
