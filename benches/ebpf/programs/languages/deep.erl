%% Burns CPU below as many functions as the first argument says, for as many seconds as the second.

-module(deep).
-export([main/1]).

main([Depth, Seconds]) ->
    Until = erlang:monotonic_time(millisecond) + list_to_integer(Seconds) * 1000,
    descend(list_to_integer(Depth), Until),
    halt().

descend(Depth, Until) when Depth > 0 ->
    descend(Depth - 1, Until) + 1;
descend(0, Until) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            _ = squares(1000, 0),
            descend(0, Until);
        false ->
            0
    end.

squares(0, Total) -> Total;
squares(Step, Total) -> squares(Step - 1, Total + Step * Step).
