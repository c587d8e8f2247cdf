// An extension of Python that calls back: `mixed.enter(function)` calls the function below three frames of its own, and
// `mixed.order(function)` below the C library's qsort.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#define KEPT __attribute__((noinline, noclone))

static PyObject *callback;

KEPT static PyObject *c_inner(PyObject *function)
{
    PyObject *result = PyObject_CallObject(function, NULL);
    __asm__ volatile("" ::: "memory");
    return result;
}

KEPT static PyObject *c_middle(PyObject *function)
{
    PyObject *result = c_inner(function);
    __asm__ volatile("" ::: "memory");
    return result;
}

static PyObject *c_enter(PyObject *module, PyObject *function)
{
    (void)module;
    PyObject *result = c_middle(function);
    __asm__ volatile("" ::: "memory");
    return result;
}

static int c_compare(const void *one, const void *other)
{
    (void)one;
    (void)other;
    Py_XDECREF(PyObject_CallObject(callback, NULL));
    return 0;
}

static PyObject *c_order(PyObject *module, PyObject *function)
{
    (void)module;
    int numbers[2] = {2, 1};
    callback = function;
    qsort(numbers, 2, sizeof *numbers, c_compare);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"enter", c_enter, METH_O, NULL},
    {"order", c_order, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "mixed", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_mixed(void)
{
    return PyModule_Create(&module);
}
