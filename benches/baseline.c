/* The least that any NVML client costs: loads the library, initialises it, reads one name per GPU, and waits.
 *
 * What the agent costs above this is the agent's own. Usage: baseline LIBRARY; prints "ready" and ends with its input. */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_fn)(void);
typedef int (*count_fn)(unsigned int *);
typedef int (*handle_fn)(unsigned int, void **);
typedef int (*name_fn)(void *, char *, unsigned int);

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return 1;
    init_fn init = (init_fn)dlsym(library, "nvmlInit_v2");
    count_fn count = (count_fn)dlsym(library, "nvmlDeviceGetCount_v2");
    handle_fn handle = (handle_fn)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    name_fn name = (name_fn)dlsym(library, "nvmlDeviceGetName");
    unsigned int devices = 0;
    if (!init || !count || !handle || !name || init() != 0 || count(&devices) != 0) return 2;
    for (unsigned int index = 0; index < devices; index++) {
        void *device = NULL;
        char text[96];
        if (handle(index, &device) != 0 || name(device, text, sizeof text) != 0) return 3;
    }
    puts("ready");
    fflush(stdout);
    return getchar() == EOF ? 0 : 0;
}
