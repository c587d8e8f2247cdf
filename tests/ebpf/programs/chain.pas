{ A chain of calls that a profile has to show whole: main, outer, middle, inner, leaf.

  The compiler keeps no frame pointers in them and describes none of its code. Frames of several shapes are on the
  way: spilled registers, a large array, and code that runs while something has to be cleaned up. }
program chain;

{$mode objfpc}

uses
  BaseUnix, SysUtils;

var
  sink: qword;

function leaf(rounds: qword): qword;
var
  state, round: qword;
begin
  state := rounds or 1;
  for round := 1 to rounds do
  begin
    state := state xor (state shl 13);
    state := state xor (state shr 7);
    state := state xor (state shl 17);
  end;
  leaf := state;
end;

function inner(rounds: qword): qword;
begin
  inner := leaf(rounds) + 1;
end;

function middle(rounds: qword): qword;
var
  large: array[0..40] of qword;
  index: integer;
begin
  for index := 0 to 40 do
    large[index] := rounds + qword(index);
  middle := inner(rounds) + large[rounds mod 41];
end;

function outer(rounds: qword): qword;
var
  text: ansistring;
begin
  text := IntToStr(rounds);
  try
    case length(text) of
      1: outer := rounds;
      2: outer := middle(rounds);
      3: outer := middle(rounds + 1);
      4: outer := inner(rounds);
      5: outer := middle(rounds) + length(text);
      6: outer := leaf(rounds);
    else
      outer := 0;
    end;
  finally
    text := '';
  end;
end;

begin
  FpAlarm(300);
  while true do
    sink := outer(20000);
end.
