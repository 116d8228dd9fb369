/* What Python sees of the compiled twins; `Compiled` in __init__.py has their types. Each of them
 * is a short cut of something that is also written in Python, gives the same where it gives
 * anything, and None where Python has to look for itself. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "batch.h"
#include "crc32c.h"
#include "plain_batch.h"

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

/* The most that a decision of a coordinator usually has. */
enum { PLAIN_RECORDS_MAX = 64, PLAIN_FIELD_BYTES_MAX = 1 << 20 };

static PyObject *key_name, *value_name;

/* The field of a record, held until it is written; NULL if it is left to Python, or with an
 * exception. */
static PyObject *plain_field(PyObject *record, PyObject *name, const uint8_t **field,
                             int64_t *length) {
    PyObject *content = PyObject_GetAttr(record, name);
    if (content == NULL)
        return NULL;
    *length = -1;
    if (content == Py_None)
        return content;
    if (!PyBytes_CheckExact(content) || PyBytes_GET_SIZE(content) > PLAIN_FIELD_BYTES_MAX) {
        Py_DECREF(content);
        return NULL;
    }
    *field = (const uint8_t *)PyBytes_AS_STRING(content);
    *length = PyBytes_GET_SIZE(content);
    return content;
}

static PyObject *plain_batch_of(const struct plain_record *records, int32_t count,
                                int64_t timestamp) {
    struct batch batch;
    size_t size = plain_batch_size(records, count);
    PyObject *bytes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes == NULL)
        return NULL;
    write_plain_batch(records, count, timestamp, (uint8_t *)PyByteArray_AS_STRING(bytes), size,
                      &batch);
    return Py_BuildValue("(NN)", bytes, header_tuple(&batch));
}

/* plain_batch(records, timestamp) */
static PyObject *py_plain_batch(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    struct plain_record records[PLAIN_RECORDS_MAX];
    PyObject *held[2 * PLAIN_RECORDS_MAX], *made = NULL;
    int fields = 0, is_whole = 1;
    if (!is_count(given, 2))
        return NULL;
    int64_t timestamp = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t count = PyList_CheckExact(args[0]) ? PyList_GET_SIZE(args[0]) : 0;
    if (count < 1 || count > PLAIN_RECORDS_MAX)
        Py_RETURN_NONE;
    for (Py_ssize_t index = 0; index < count && is_whole; index++) {
        PyObject *record = PyList_GetItem(args[0], index);
        struct plain_record *plain = &records[index];
        is_whole = record != NULL &&
                   (held[fields] = plain_field(record, key_name, &plain->key,
                                               &plain->key_length)) != NULL &&
                   (held[++fields] = plain_field(record, value_name, &plain->value,
                                                 &plain->value_length)) != NULL &&
                   ++fields;
    }
    if (is_whole)
        made = plain_batch_of(records, (int32_t)count, timestamp);
    while (fields)
        Py_DECREF(held[--fields]);
    if (!is_whole && !PyErr_Occurred())
        Py_RETURN_NONE;
    return made;
}

static PyMethodDef methods[] = {
    {"crc32c", py_crc32c, METH_O, NULL},
    {"good_header", (PyCFunction)(void (*)(void))py_good_header, METH_FASTCALL, NULL},
    {"plain_batch", (PyCFunction)(void (*)(void))py_plain_batch, METH_FASTCALL, NULL},
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
    key_name = PyUnicode_InternFromString("key");
    value_name = PyUnicode_InternFromString("value");
    if (key_name == NULL || value_name == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
