/* Plays an OCI runtime: tells how it was called, a line each, copies its
 * standard input, and ends as FAKE_EXIT or FAKE_SIGNAL say. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    printf("pid %d\n", (int)getpid());
    for (int i = 0; i < argc; i++)
        printf("arg %s\n", argv[i]);
    for (int c; (c = getchar()) != EOF;)
        putchar(c);
    fflush(stdout);
    fputs("said on stderr\n", stderr);
    if (getenv("FAKE_SIGNAL"))
        raise(atoi(getenv("FAKE_SIGNAL")));
    return getenv("FAKE_EXIT") ? atoi(getenv("FAKE_EXIT")) : 0;
}
