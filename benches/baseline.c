/* A minimal NVML client: loads the library, initializes it, reads the name of each GPU, and waits for events.
 *
 * Its memory and CPU time are the baseline, which benches/agent.rs subtracts from those of the agent. Usage: baseline LIBRARY.
 * Prints "ready" and runs until it is killed. It waits like the agent: five seconds at a time, for Xid errors and changes of
 * the MIG configuration. */
#include <dlfcn.h>
#include <stdio.h>

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned int gpu_instance, compute_instance;
} event;

typedef int (*init_fn)(void);
typedef int (*count_fn)(unsigned int *);
typedef int (*handle_fn)(unsigned int, void **);
typedef int (*name_fn)(void *, char *, unsigned int);
typedef int (*create_fn)(void **);
typedef int (*supported_fn)(void *, unsigned long long *);
typedef int (*register_fn)(void *, unsigned long long, void *);
typedef int (*wait_fn)(void *, event *, unsigned int);

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return 1;
    init_fn init = (init_fn)dlsym(library, "nvmlInit_v2");
    count_fn count = (count_fn)dlsym(library, "nvmlDeviceGetCount_v2");
    handle_fn handle = (handle_fn)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    name_fn name = (name_fn)dlsym(library, "nvmlDeviceGetName");
    create_fn create = (create_fn)dlsym(library, "nvmlEventSetCreate");
    supported_fn supported = (supported_fn)dlsym(library, "nvmlDeviceGetSupportedEventTypes");
    register_fn enlist = (register_fn)dlsym(library, "nvmlDeviceRegisterEvents");
    wait_fn wait = (wait_fn)dlsym(library, "nvmlEventSetWait_v2");
    if (!init || !count || !handle || !name || !create || !supported || !enlist || !wait) return 2;

    unsigned int devices = 0;
    void *set = NULL;
    if (init() != 0 || count(&devices) != 0 || create(&set) != 0) return 3;
    for (unsigned int index = 0; index < devices; index++) {
        void *device = NULL;
        char text[96];
        unsigned long long types = 0;
        if (handle(index, &device) != 0 || name(device, text, sizeof text) != 0) return 4;
        if (supported(device, &types) != 0 || enlist(device, types & 0x108, set) != 0) return 5;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        event happened;
        wait(set, &happened, 5000);
    }
}
