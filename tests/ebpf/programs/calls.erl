%% Burns CPU in functions called in different ways, each in one known chain, and accounts for its time.
-module(calls).
-export([main/1, inner/0, by_process/1]).

%% Equal work for each way. Each function returns something else than those that it calls: with the same result, its last call would
%% be a tail call.
-define(STEPS, 2000000).

burn() ->
    put(start, cpu()),
    burn(?STEPS).

burn(0) -> % burns
    {Milliseconds, _} = erlang:statistics(runtime), % burns
    put(burned, get(burned) + Milliseconds * 1000000 - get(start)), % burns
    ok; % burns
burn(N) when N rem 100 =:= 0 -> % burns
    _ = erlang:phash2({N, [N, <<"text">>]}, 1000), % burns
    _ = maps:get(N rem 3, #{0 => zero, 1 => one, 2 => two}), % burns
    burn(N - 1); % burns
burn(N) -> % burns
    burn(N - 1). % burns

cpu() ->
    {Milliseconds, _} = erlang:statistics(runtime),
    Milliseconds * 1000000.

by_call() ->
    middle(), % calls
    true.

middle() ->
    inner(), % calls
    middle.

inner() ->
    burn(), % calls
    inner.

recurse(0) ->
    burn(), % calls
    0;
recurse(Depth) ->
    1 + recurse(Depth - 1). % calls

by_recursion() ->
    _ = recurse(30), % calls
    true.

by_fun() ->
    By = rand(),
    _ = enter(fun() -> burn(), By end), % calls
    true.

enter(Function) ->
    {Function()}. % calls

by_map() ->
    _ = lists:map(fun(N) -> burn(), N end, [1]), % calls
    true.

by_fold() ->
    _ = lists:foldl(fun(N, Sum) -> burn(), Sum + N end, 0, [1]), % calls
    true.

by_sort() ->
    _ = lists:sort(fun(A, B) -> burn(), A =< B end, [2, 1]), % calls
    true.

by_comprehension() ->
    _ = [begin burn(), N end || N <- [1]], % calls
    true.

by_apply() ->
    {Module, Function} = {?MODULE, inner},
    inner = apply(Module, Function, []), % calls
    true.

by_name() ->
    Function = list_to_existing_atom("inner"),
    inner = ?MODULE:Function(), % calls
    true.

by_catch() ->
    _ = (catch begin burn(), throw(done) end), % calls
    true.

by_exception() ->
    try
        _ = deep(20), % calls
        false
    catch
        error:{deep, _} ->
            burn(), % calls
            true
    end.

deep(0) ->
    error({deep, rand()});
deep(Depth) ->
    1 + deep(Depth - 1). % calls

by_after() ->
    try
        rand()
    after
        burn() % calls
    end,
    true.

by_map_fold() ->
    _ = maps:fold(fun(_, Value, Sum) -> burn(), Sum + Value end, 0, #{one => 1}), % calls
    true.

by_variables() ->
    %% Many variables on the stack.
    [A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T] = lists:seq(1, 20),
    burn(), % calls
    _ = [A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T],
    put(start, cpu()),
    burn(A), % calls
    _ = {A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T},
    true.

by_float() ->
    Float = rand() / 3.0,
    burn(), % calls
    _ = Float * 2.0,
    true.

'by_größe'() ->
    burn(), % calls
    true.

spawn_processes() ->
    Self = self(),
    Pids = [spawn(?MODULE, by_process, [Self]) || _ <- lists:seq(1, 10)],
    [receive {done, Pid} -> ok end || Pid <- Pids],
    true.

by_process(Parent) ->
    put(burned, 0),
    put(start, cpu()),
    burn(?STEPS div 10), % calls
    Parent ! {done, self()},
    true.

by_garbage() ->
    _ = garbage(?STEPS div 20, []), % calls
    true.

garbage(0, Kept) -> % burns
    length(Kept); % burns
garbage(N, Kept) when length(Kept) > 20 -> % burns
    garbage(N, []); % burns
garbage(N, Kept) -> % burns
    garbage(N - 1, [lists:seq(1, 10), integer_to_binary(N) | Kept]). % burns

by_builtin() ->
    builtin(?STEPS div 800), % calls
    true.

builtin(0) -> % burns
    ok; % burns
builtin(N) -> % burns
    _ = binary_to_term(term_to_binary(lists:seq(1, 50))), % burns
    _ = erlang:md5(<<0:4096>>), % burns
    _ = binary:matches(<<0:8192, 1>>, <<1>>), % burns
    builtin(N - 1). % burns

rand() ->
    erlang:phash2(self()).

ways() ->
    [fun by_call/0, fun by_recursion/0, fun by_fun/0, fun by_map/0, fun by_fold/0, fun by_sort/0,
     fun by_comprehension/0, fun by_apply/0, fun by_name/0, fun by_catch/0, fun by_exception/0,
     fun by_after/0, fun by_map_fold/0, fun by_variables/0, fun by_float/0, fun 'by_größe'/0,
     fun spawn_processes/0, fun by_garbage/0, fun by_builtin/0].

main([Seconds, Path]) ->
    Until = erlang:monotonic_time(millisecond) + list_to_integer(Seconds) * 1000,
    %% In the innermost function.
    put(burned, 0),
    {ok, Clock} = file:open(Path, [write, raw]),
    main(ways(), Until, Clock).

main([], Until, Clock) ->
    case erlang:monotonic_time(millisecond) < Until of
        true -> main(ways(), Until, Clock);
        false -> halt()
    end;
main([Way | Ways], Until, Clock) ->
    {Burned, Start, Cpu} = {get(burned), os:system_time(nanosecond), cpu()},
    Way(), % calls
    {Used, Stop} = {cpu() - Cpu, os:system_time(nanosecond)},
    {name, Name} = erlang:fun_info(Way, name),
    Leaf = case lists:member(Name, [spawn_processes, by_garbage, by_builtin]) of
        true -> "?";
        false -> integer_to_list(get(burned) - Burned)
    end,
    Shown = case Name of spawn_processes -> by_process; _ -> Name end,
    Line = io_lib:format("~ts ~b ~b ~b ~s~n", [Shown, Start, Stop, Used, Leaf]),
    ok = file:write(Clock, unicode:characters_to_binary(Line)),
    main(Ways, Until, Clock).
