/* What Python sees of the compiled twins; `Compiled` in __init__.py has their types. Each of them
 * is a short cut of something that is also written in Python, gives the same where it gives
 * anything, and None where Python has to look for itself. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "batch.h"
#include "crc32c.h"

static int is_count(Py_ssize_t given, Py_ssize_t wanted) {
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", wanted, given);
    return 0;
}

static PyObject *header_tuple(const struct batch *batch) {
    return Py_BuildValue("(LiibIhiLLLhii)", (long long)batch->base_offset, batch->length,
                         batch->leader_epoch, batch->magic, batch->checksum, batch->attributes,
                         batch->last_offset_delta, (long long)batch->base_timestamp,
                         (long long)batch->max_timestamp, (long long)batch->producer_id,
                         batch->producer_epoch, batch->base_sequence, batch->record_count);
}

static PyObject *py_crc32c(PyObject *self, PyObject *buffer) {
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t sum = crc32c(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

/* good_header(records, bytes_max, is_compacted, earliest, latest) */
static PyObject *py_good_header(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    struct batch batch;
    struct batch_rules rules;
    if (!is_count(count, 5))
        return NULL;
    rules.bytes_max = PyLong_AsLongLong(args[1]);
    rules.is_compacted = args[2] == Py_True;
    rules.earliest = PyLong_AsLongLong(args[3]);
    rules.latest = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_good = is_batch_good(view.buf, (size_t)view.len, &rules, &batch);
    PyBuffer_Release(&view);
    if (!is_good)
        Py_RETURN_NONE;
    return header_tuple(&batch);
}

/* walk(data, start, count) */
static PyObject *py_walk(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_buffer view;
    struct walk walk;
    if (!is_count(count, 3))
        return NULL;
    long long start = PyLong_AsLongLong(args[1]), records = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_good = start >= 0 && start <= view.len && records > 0 &&
                  walk_records((const uint8_t *)view.buf + start, (size_t)(view.len - start),
                               records, &walk);
    PyBuffer_Release(&view);
    if (!is_good)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLO)", (long long)walk.delta_max, (long long)walk.delta_min,
                         walk.has_null_key ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"crc32c", py_crc32c, METH_O, NULL},
    {"good_header", (PyCFunction)(void (*)(void))py_good_header, METH_FASTCALL, NULL},
    {"walk", (PyCFunction)(void (*)(void))py_walk, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ottla.native._compiled", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void) {
    if (!crc32c_prepare()) {
        PyErr_SetString(PyExc_ImportError, "this processor has no SSE 4.2");
        return NULL;
    }
    return PyModule_Create(&definition);
}
