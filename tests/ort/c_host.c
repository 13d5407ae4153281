/* A host without Python and without onnxruntime's header: functions are taken from the table by their positions.
   c_host ONNXRUNTIME LIBRARY MODEL: reads x [3, 24] and r [3, 17] from standard input, writes h and y. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *(*function)();
typedef struct { function get_api, version; } base;

static const void **api;

static void check(void *status) {
    if (status) {
        fprintf(stderr, "%s\n", ((const char *(*)(void *))api[2])(status));
        exit(1);
    }
}
#define CALL(slot, ...) check(((function)api[slot])(__VA_ARGS__))

static void *tensor(void *memory, float *data, size_t columns) {
    int64_t shape[2] = {3, (int64_t)columns};
    void *value;
    if (fread(data, 4, 3 * columns, stdin) != 3 * columns) exit(2);
    CALL(49, memory, data, (size_t)(12 * columns), shape, (size_t)2, 1, &value);
    return value;
}

int main(int count, char **words) {
    void *runtime = dlopen(words[1], RTLD_NOW);
    if (count != 4 || !runtime) return 3;
    api = ((const void **(*)(uint32_t))((base *(*)(void))dlsym(runtime, "OrtGetApiBase"))()->get_api)(17);
    void *environment, *options, *session, *memory, *outputs[2] = {0, 0};
    float x[3 * 24], r[3 * 17], *data;
    CALL(3, 3, "host", &environment);
    CALL(10, &options);
    CALL(228, options, words[2]); /* RegisterCustomOpsLibrary_V2 */
    CALL(7, environment, words[3], options, &session);
    CALL(69, 0, 0, &memory);
    const void *inputs[2] = {tensor(memory, x, 24), tensor(memory, r, 17)};
    const char *names[2] = {"x", "r"}, *results[2] = {"h", "y"};
    CALL(9, session, (void *)0, names, inputs, (size_t)2, results, (size_t)2, outputs);
    for (int i = 0; i < 2; i++) {
        CALL(51, outputs[i], (void **)&data);
        fwrite(data, 4, 3 * (i ? 17 : 40), stdout);
    }
    return 0;
}
