/*
 * dlopen-probe SONAME:FUNCTION...
 *
 * Loads each library by its soname, as an application does, and prints one
 * line of JSON for it: the file that the loader found, and what the function
 * `const char *FUNCTION(void)` in it answers; or the loader's error.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef const char *(*answer_function)(void);

static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void print_member(const char *separator, const char *key, const char *value)
{
    printf("%s\"%s\":", separator, key);
    print_string(value);
}

static void load(const char *soname, const char *function)
{
    print_member("{", "soname", soname);
    void *library = dlopen(soname, RTLD_NOW);
    answer_function answer = library ? (answer_function)dlsym(library, function) : NULL;
    Dl_info found;
    if (!answer) {
        print_member(",", "error", dlerror());
    } else if (!dladdr((void *)answer, &found)) {
        print_member(",", "error", "the function is in no known file");
    } else {
        print_member(",", "path", found.dli_fname);
        print_member(",", "answer", answer());
    }
    puts("}");
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) {
        char *colon = strchr(arguments[i], ':');
        if (!colon) {
            fprintf(stderr, "usage: dlopen-probe SONAME:FUNCTION...\n");
            return 2;
        }
        *colon = '\0';
        load(arguments[i], colon + 1);
    }
    return 0;
}
