using System;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;

// Makes methods without metadata, which are called once. Their number says from where. Arguments: for how many seconds, and how many
// iterations each method does.
static class Churn {
    const MethodImplOptions Kept = MethodImplOptions.NoInlining;
    static long sink;
    static int count;

    [MethodImpl(Kept)] static void by_0(Func<int, long> made) { sink += made(count); }
    [MethodImpl(Kept)] static void by_1(Func<int, long> made) { sink += made(count); }
    [MethodImpl(Kept)] static void by_2(Func<int, long> made) { sink += made(count); }
    [MethodImpl(Kept)] static void by_3(Func<int, long> made) { sink += made(count); }
    [MethodImpl(Kept)] static void by_4(Func<int, long> made) { sink += made(count); }

    static readonly Action<Func<int, long>>[] ways = { by_0, by_1, by_2, by_3, by_4 };

    // Adds and counts down.
    static Func<int, long> make(int number) {
        var parameters = new Type[] { typeof(int) };
        var method = new DynamicMethod("made_" + number.ToString(), typeof(long), parameters, typeof(Churn).Module, true);
        ILGenerator code = method.GetILGenerator();
        LocalBuilder sum = code.DeclareLocal(typeof(long));
        Label again = code.DefineLabel();
        // Methods of different sizes take each other's place.
        for (int more = number % 7 * 10; more >= 0; more--) {
            code.Emit(OpCodes.Ldarg_0);
            code.Emit(OpCodes.Conv_I8);
            code.Emit(OpCodes.Stloc, sum);
        }
        code.MarkLabel(again);
        code.Emit(OpCodes.Ldloc, sum);
        code.Emit(OpCodes.Ldc_I8, 31L);
        code.Emit(OpCodes.Mul);
        code.Emit(OpCodes.Ldarg_0);
        code.Emit(OpCodes.Conv_I8);
        code.Emit(OpCodes.Add);
        code.Emit(OpCodes.Stloc, sum);
        code.Emit(OpCodes.Ldarg_0);
        code.Emit(OpCodes.Ldc_I4_1);
        code.Emit(OpCodes.Sub);
        code.Emit(OpCodes.Starg_S, (byte)0);
        code.Emit(OpCodes.Ldarg_0);
        code.Emit(OpCodes.Brtrue, again);
        code.Emit(OpCodes.Ldloc, sum);
        code.Emit(OpCodes.Ret);
        return (Func<int, long>)method.CreateDelegate(typeof(Func<int, long>));
    }

    static int Main(string[] arguments) {
        count = int.Parse(arguments[1]);
        int start = Environment.TickCount;
        for (int number = 0; Environment.TickCount - start < int.Parse(arguments[0]) * 1000; number++) {
            ways[number % ways.Length](make(number));
            if (number % 20 == 19) {
                GC.Collect();
            }
        }
        return 0;
    }
}
