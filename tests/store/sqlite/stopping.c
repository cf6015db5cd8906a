/* Put before a program's libraries (LD_PRELOAD): stops in munmap(), once $STOP.armed is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *named(const char *end) {
    static char name[4096];
    snprintf(name, sizeof name, "%s.%s", getenv("STOP") ? getenv("STOP") : "", end);
    return name;
}

int munmap(void *start, size_t length) {
    static int (*original)(void *, size_t);
    if (!original) original = (int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap");
    int result = original(start, length);
    if (getenv("STOP") && access(named("armed"), F_OK) == 0) {
        unlink(named("armed"));
        close(open(named("stopped"), O_CREAT | O_WRONLY, 0644));
        while (access(named("go"), F_OK)) usleep(1000);
    }
    return result;
}
