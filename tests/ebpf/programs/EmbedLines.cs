using System.Linq;
using Mono.Cecil;
using Mono.Cecil.Cil;
using Mono.CompilerServices.SymbolWriter;

// Mono's compiler writes lines to a file of its own kind. This embeds them as a portable PDB. Arguments: the assembly, the output.
static class EmbedLines {
    const int Hidden = 0xfeefee;

    static void Main(string[] arguments) {
        var assembly = AssemblyDefinition.ReadAssembly(arguments[0]);
        var symbols = MonoSymbolFile.ReadSymbolFile(arguments[0] + ".mdb");
        foreach (var method in assembly.MainModule.GetTypes().SelectMany(type => type.Methods)) {
            var entry = symbols.GetMethodByToken(method.MetadataToken.ToInt32());
            if (entry == null || !method.HasBody) {
                continue;
            }
            var document = new Document(entry.CompileUnit.SourceFile.FileName);
            var instructions = method.Body.Instructions.ToDictionary(it => it.Offset);
            foreach (var line in entry.GetLineNumberTable().LineNumbers) {
                Instruction instruction;
                if (!instructions.TryGetValue(line.Offset, out instruction)) {
                    continue;
                }
                int number = line.IsHidden ? Hidden : line.Row;
                method.DebugInformation.SequencePoints.Add(new SequencePoint(instruction, document) {
                    StartLine = number, StartColumn = 1, EndLine = number, EndColumn = 2,
                });
            }
        }
        assembly.Write(arguments[1], new WriterParameters {
            WriteSymbols = true,
            SymbolWriterProvider = new EmbeddedPortablePdbWriterProvider(),
        });
    }
}
