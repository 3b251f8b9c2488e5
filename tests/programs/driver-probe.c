/*
 * driver-probe NAME[:FUNCTION]...
 *
 * Loads each library by its name, each in a process of its own, and prints a line:
 * the name, `loaded` and the file that the loader found, or `failed` and the
 * loader's error. With a function, which takes one number and returns one, it is
 * called with 0, and the line ends with `=` and the result.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int load(const char *name, const char *function)
{
    void *library = dlopen(name, RTLD_NOW);
    if (!library) {
        printf("%s failed %s\n", name, dlerror());
        return 0;
    }
    struct link_map *map;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        printf("%s failed %s\n", name, dlerror());
        return 0;
    }
    printf("%s loaded %s", name, map->l_name);
    if (function) {
        int (*call)(unsigned) = (int (*)(unsigned))dlsym(library, function);
        if (call)
            printf(" = %d", call(0));
    }
    putchar('\n');
    return 0;
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        char *function = strchr(arguments[i], ':');
        if (function)
            *function++ = '\0';
        pid_t child = fork();
        if (child == 0) {
            load(arguments[i], function);
            fflush(stdout);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        if (status != 0)
            printf("%s failed with wait status %d\n", arguments[i], status);
        fflush(stdout);
    }
    return 0;
}
