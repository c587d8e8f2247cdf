//! Functions of the interpreter that only forward a call from one function of the program to another, or from
//! `main` to the first one. They are redundant in a stack that has the functions themselves.

/// Builds with tail calls have a function for each instruction, which jumps to that of the next one. The loop's own
/// function calls the first, and keeps the marker of its frames.
const INSTRUCTION: &str = "_TAIL_CALL_";

pub fn is_one(name: &str) -> bool {
    name.starts_with(INSTRUCTION) || NAMES.binary_search(&name).is_ok()
}

/// Sorted. Without compiler suffixes after a dot.
const NAMES: &[&str] = &[
    "PyEval_EvalCode",
    "PyEval_EvalCodeEx",
    "PyEval_EvalFrame",
    "PyEval_EvalFrameEx",
    "PyObject_Call",
    "PyObject_CallFunction",
    "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethod",
    "PyObject_CallMethodObjArgs",
    "PyObject_CallNoArgs",
    "PyObject_CallObject",
    "PyObject_CallOneArg",
    "PyObject_Vectorcall",
    "PyObject_VectorcallDict",
    "PyObject_VectorcallMethod",
    "PyRun_AnyFileExFlags",
    "PyRun_FileExFlags",
    "PyRun_SimpleFileExFlags",
    "PyRun_SimpleStringFlags",
    "PyRun_StringFlags",
    "PyVectorcall_Call",
    "Py_BytesMain",
    "Py_Main",
    "Py_RunMain",
    "_PyEval_EvalCode",
    "_PyEval_EvalCodeWithName",
    "_PyEval_EvalFrame",
    "_PyEval_Vector",
    "_PyFunction_FastCallDict",
    "_PyFunction_FastCallKeywords",
    "_PyFunction_Vectorcall",
    "_PyObject_Call",
    "_PyObject_CallNoArgs",
    "_PyObject_Call_Prepend",
    "_PyObject_FastCallDict",
    "_PyObject_FastCallDictTstate",
    "_PyObject_FastCall_Prepend",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "_PyObject_VectorcallTstate",
    "_PyRun_AnyFileObject",
    "_PyRun_SimpleFileObject",
    "_PyRun_SimpleStringFlagsWithName",
    "_PyVectorcall_Call",
    "call_function",
    "cfunction_call",
    "cfunction_call_varargs",
    "cfunction_vectorcall_FASTCALL",
    "cfunction_vectorcall_FASTCALL_KEYWORDS",
    "cfunction_vectorcall_NOARGS",
    "cfunction_vectorcall_O",
    "do_call_core",
    "function_code_fastcall",
    "gen_send_ex",
    "gen_send_ex2",
    "method_vectorcall",
    "method_vectorcall_FASTCALL",
    "method_vectorcall_FASTCALL_KEYWORDS",
    "method_vectorcall_NOARGS",
    "method_vectorcall_O",
    "method_vectorcall_VARARGS",
    "object_vacall",
    "pymain_main",
    "pymain_run_command",
    "pymain_run_file",
    "pymain_run_file_obj",
    "pymain_run_module",
    "pymain_run_python",
    "pymain_run_stdin",
    "pyrun_file",
    "pyrun_simple_file",
    "pythread_wrapper",
    "run_eval_code_obj",
    "run_mod",
    "slot_tp_call",
    "thread_run",
    "vectorcall_maybe",
    "vectorcall_method",
    "vectorcall_unbound",
];

#[test]
fn the_names_are_sorted() {
    assert!(NAMES.is_sorted());
}

#[test]
fn functions_of_instructions_are_known_by_their_prefix() {
    let names = [
        "_TAIL_CALL_BINARY_OP",
        "_PyEval_Vector",
        "_PyEval_EvalFrameDefault",
    ];
    assert_eq!(names.map(is_one), [true, true, false]);
}
