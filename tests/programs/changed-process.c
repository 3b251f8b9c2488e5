/* A container's first process that changes what a tool sees of it. It waits until the file FLAG
 * is there, makes the change, and goes on for ever:
 *
 *   changed-process FLAG thread            its first thread ends, and another one goes on
 *   changed-process FLAG thread-and-child  the same, with a child process
 *   changed-process FLAG child             it ends, and a child process goes on
 *   changed-process FLAG chroot DIRECTORY  it changes its root
 *   changed-process FLAG users             it enters a user namespace of its own
 *   changed-process FLAG users-and-mounts  the same, and a mount namespace
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *wait_for_ever(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static void check(int result, const char *what)
{
    if (result) {
        perror(what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc < 3)
        return 2;
    const char *change = argv[2];
    while (access(argv[1], F_OK))
        usleep(2000);
    if (strstr(change, "child") && fork() == 0)
        wait_for_ever(NULL);
    if (!strcmp(change, "child"))
        return 0;
    if (!strcmp(change, "chroot"))
        check(chroot(argv[3]), change);
    if (!strcmp(change, "users"))
        check(unshare(CLONE_NEWUSER), change);
    if (!strcmp(change, "users-and-mounts"))
        check(unshare(CLONE_NEWUSER | CLONE_NEWNS), change);
    if (!strncmp(change, "thread", 6)) {
        check(pthread_create(&thread, NULL, wait_for_ever, NULL), change);
        pthread_exit(NULL);
    }
    wait_for_ever(NULL);
}
