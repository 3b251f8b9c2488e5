/* Prints the messages of devices that it receives: `kernel WORD` those of the kernel that have
 * the word, by a socket of its own, and `udev SUBSYSTEM` those that libudev's monitor passes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/netlink.h>

static void die(const char *what) {
    perror(what);
    exit(1);
}

/* Whether a program that is told can use the node. */
static const char *opens(const char *path) {
    int file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0)
        return strerror(errno);
    close(file);
    return "opens";
}

static void kernel(const char *word) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = 1};
    int on = 1, number = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT);
    if (number < 0 || bind(number, (struct sockaddr *)&address, sizeof address) < 0)
        die("socket");
    setsockopt(number, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    puts("ready");
    for (;;) {
        char text[8192], control[CMSG_SPACE(sizeof(struct ucred))], node[256] = "";
        struct sockaddr_nl from;
        struct iovec part = {text, sizeof text - 1};
        struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
        ssize_t length = recvmsg(number, &message, 0);
        if (length < 0)
            die("recvmsg");
        text[length] = 0;
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        struct ucred sender = {0, -1, -1};
        if (first)
            memcpy(&sender, CMSG_DATA(first), sizeof sender);
        for (ssize_t at = 0; at < length; at += strlen(text + at) + 1)
            if (!strncmp(text + at, "DEVNAME=", 8))
                snprintf(node, sizeof node, "/dev/%s", text + at + 8);
        for (ssize_t at = 0; at < length; at++)
            if (!text[at])
                text[at] = ' ';
        if (strstr(text, word))
            printf("from %u group %u user %d: %s: %s\n", from.nl_pid, from.nl_groups,
                   (int)sender.uid, text, opens(node));
    }
}

static void *library;

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        die(name);
    return found;
}

static void udev(const char *subsystem) {
    library = dlopen("libudev.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *(*new)(void) = function("udev_new");
    void *(*monitor)(void *, const char *) = function("udev_monitor_new_from_netlink");
    int (*match)(void *, const char *, const char *) =
        function("udev_monitor_filter_add_match_subsystem_devtype");
    int (*enable)(void *) = function("udev_monitor_enable_receiving");
    int (*descriptor)(void *) = function("udev_monitor_get_fd");
    void *(*receive)(void *) = function("udev_monitor_receive_device");
    const char *(*property)(void *, const char *) = function("udev_device_get_property_value");
    const char *(*node)(void *) = function("udev_device_get_devnode");
    const char *(*path)(void *) = function("udev_device_get_devpath");
    int (*initialized)(void *) = function("udev_device_get_is_initialized");
    void *of = monitor(new(), "udev");
    if (!of || match(of, subsystem, NULL) < 0 || enable(of) < 0)
        die("monitor");
    struct pollfd wait = {descriptor(of), POLLIN, 0};
    puts("ready");
    while (poll(&wait, 1, -1) >= 0) {
        void *device = receive(of);
        if (!device)
            continue;
        const char *serial = property(device, "ID_SERIAL"), *links = property(device, "DEVLINKS");
        printf("%s %s %s %s:%s serial %s links %s initialized %d: %s\n",
               property(device, "ACTION"), path(device), node(device), property(device, "MAJOR"),
               property(device, "MINOR"), serial ? serial : "-", links ? links : "-",
               initialized(device), opens(node(device)));
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count != 3)
        return 2;
    strcmp(words[1], "udev") ? kernel(words[2]) : udev(words[2]);
    return 1;
}
