/*
 * What a program may ask about its own stack while calls are in flight: backtrace(3) and _Unwind_Backtrace of any library
 * that an argument names, also from signal handlers and callbacks, exceptions with clean-ups, and the clean-ups of
 * pthread_cancel and pthread_exit. Prints names only, so that two runs can be compared; frames of other files are `-`.
 */
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>
#include <unwind.h>

#define CALLED extern "C" __attribute__((noinline, noclone, visibility("default")))

using Backtrace = _Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void *);
using AddressOf = uintptr_t (*)(_Unwind_Context *);
static volatile int sink;
static const char *self;

/* The name of the program's function at an address; frames of the agent are left out. */
static void print_frame(uintptr_t pc)
{
    Dl_info info;
    if (!dladdr(reinterpret_cast<void *>(pc - 1), &info))
        printf(" ?");
    else if (strstr(info.dli_fname, "agent.so") == nullptr)
        printf(" %s", info.dli_sname && strcmp(info.dli_fname, self) == 0 ? info.dli_sname : "-");
}

CALLED void looks_with_libc(const char *what)
{
    void *found[100];
    int count = backtrace(found, 100);
    printf("%s:", what);
    for (int i = 0; i < count; i++)
        print_frame(reinterpret_cast<uintptr_t>(found[i]));
    printf("\n");
}

static Backtrace walk;
static AddressOf address_of;

static _Unwind_Reason_Code note(_Unwind_Context *context, void *)
{
    uintptr_t pc = address_of(context);
    if (pc)
        print_frame(pc);
    return _URC_NO_REASON;
}

CALLED void looks_with_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return;
    walk = reinterpret_cast<Backtrace>(dlsym(library, "_Unwind_Backtrace"));
    address_of = reinterpret_cast<AddressOf>(dlsym(library, "_Unwind_GetIP"));
    printf("%s:", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    walk(note, nullptr);
    printf("\n");
}

struct Cleanup {
    const char *name;
    ~Cleanup() { printf("cleans up %s\n", name); }
};

static int arguments;
static char **argument;

CALLED void looks(const char *what)
{
    looks_with_libc(what);
    for (int i = 1; i < arguments; i++)
        looks_with_library(argument[i]);
}

CALLED int nests(int depth) { return depth ? nests(depth - 1) + 1 : (looks("nested"), 0); }

CALLED void on_signal(int) { looks_with_libc("in a handler"); }

CALLED int compares(const void *, const void *)
{
    static bool shown;
    if (!shown)
        looks("in a callback");
    shown = true;
    return 0;
}

CALLED void sorts()
{
    int numbers[4] = {1, 2, 3, 4};
    qsort(numbers, 4, sizeof *numbers, compares);
    sink = numbers[0];
}

CALLED void tail_called(const char *what)
{
    looks(what);
    sink = 1;
}

CALLED void ends_in_tail_call() { tail_called("tail-called"); }

CALLED void throws(int depth)
{
    Cleanup cleanup{"a frame"};
    if (depth == 0)
        throw std::runtime_error("thrown");
    throws(depth - 1);
    sink = depth;
}

CALLED void catches()
{
    try {
        throws(3);
    } catch (const std::exception &error) {
        printf("caught %s\n", error.what());
        looks("while handling");
    }
    try {
        try {
            throws(1);
        } catch (...) {
            Cleanup cleanup{"a handler"};
            throw;
        }
    } catch (const std::exception &error) {
        printf("caught %s again\n", error.what());
    }
}

CALLED void waits_for_cancel()
{
    Cleanup cleanup{"a cancelled frame"};
    for (;;)
        usleep(1000);
}

CALLED void *is_cancelled(void *)
{
    Cleanup cleanup{"a cancelled thread"};
    waits_for_cancel();
    return nullptr;
}

CALLED void exits_from_depth(int depth)
{
    Cleanup cleanup{"a frame of a thread that exits"};
    if (depth == 0)
        pthread_exit(const_cast<char *>("exited"));
    exits_from_depth(depth - 1);
    sink = depth;
}

CALLED void *exits(void *)
{
    looks("in a thread");
    exits_from_depth(2);
    return nullptr;
}

CALLED void has_threads()
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, nullptr, is_cancelled, nullptr);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    pthread_create(&thread, nullptr, exits, nullptr);
    pthread_join(thread, &result);
    printf("%s\n", static_cast<char *>(result));
}

int main(int count, char **values)
{
    Dl_info info;
    dladdr(reinterpret_cast<void *>(looks), &info);
    self = info.dli_fname;
    arguments = count;
    argument = values;
    nests(40);
    sorts();
    ends_in_tail_call();
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    catches();
    has_threads();
    return 0;
}
