/* A process that keeps a device in a way that its first thread's descriptors do not show:
 *
 *   open-device NODE thread   a thread with its own table of descriptors has the device open
 *   open-device NODE mapped   the device's memory is mapped, and no descriptor is open
 *
 * It waits until NODE is there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *node;

static int open_node(void)
{
    int descriptor;
    /* A loop device that another program has just given up cannot be opened for a moment. */
    while ((descriptor = open(node, O_RDONLY)) < 0 && errno == ENXIO)
        usleep(2000);
    if (descriptor < 0) {
        perror(node);
        exit(1);
    }
    return descriptor;
}

static void *open_in_thread(void *nothing)
{
    if (unshare(CLONE_FILES)) {
        perror("unshare");
        exit(1);
    }
    open_node();
    for (;;)
        pause();
    return nothing;
}

static void map_node(void)
{
    int descriptor = open_node();
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, descriptor, 0) == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    close(descriptor);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc != 3)
        return 2;
    node = argv[1];
    while (access(node, R_OK))
        usleep(2000);
    if (!strcmp(argv[2], "mapped"))
        map_node();
    else if (pthread_create(&thread, NULL, open_in_thread, NULL))
        return 1;
    for (;;)
        pause();
}
