/* Shows that it was loaded. Built with -DMARKER="path". */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void)
{
    int fd = open(MARKER, O_CREAT | O_WRONLY, 0600);
    if (fd >= 0)
        close(fd);
}
