// A hook that attaches a device program to the container's cgroup (version 2), as a node's
// agent does: by its map it denies /dev/zero and allows the rest.

#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int command, union bpf_attr *attr) {
    int made = syscall(SYS_bpf, command, attr, sizeof *attr);
    if (made < 0) {
        perror("bpf");
        exit(1);
    }
    return made;
}

static int cgroup(void) {
    static char state[1 << 20], path[4096], directory[8192];
    if (fread(state, 1, sizeof state - 1, stdin) == 0)
        return -1;
    char *pid = strstr(state, "\"pid\":");
    if (!pid)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/cgroup", atoi(pid + 6));
    FILE *lines = fopen(path, "r");
    while (lines && fgets(path, sizeof path, lines)) {
        if (strncmp(path, "0::", 3))
            continue;
        path[strcspn(path, "\n")] = 0;
        snprintf(directory, sizeof directory, "/sys/fs/cgroup%s", path + 3);
        return open(directory, O_RDONLY | O_DIRECTORY);
    }
    return -1;
}

int main(void) {
    unsigned key = 0, value = 1;
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY,
                          .key_size = sizeof key,
                          .value_size = sizeof value,
                          .max_entries = 1};
    int denials = bpf(BPF_MAP_CREATE, &map);
    union bpf_attr entry = {.map_fd = denials};
    entry.key = (unsigned long)&key;
    entry.value = (unsigned long)&value;
    bpf(BPF_MAP_UPDATE_ELEM, &entry);
    struct bpf_insn code[] = {
        {BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_6, BPF_REG_1, 0, 0},
        {BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -4, 0},
        {BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0},
        {BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4},
        {BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, denials},
        {0, 0, 0, 0, 0},
        {BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem},
        {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 8, 0},
        {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_0, BPF_REG_0, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 6, 0},
        {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_1, BPF_REG_6, 4, 0},
        {BPF_JMP | BPF_JNE | BPF_K, BPF_REG_1, 0, 4, 1},
        {BPF_LDX | BPF_MEM | BPF_W, BPF_REG_1, BPF_REG_6, 8, 0},
        {BPF_JMP | BPF_JNE | BPF_K, BPF_REG_1, 0, 2, 5},
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
        {BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1},
        {BPF_JMP | BPF_EXIT, 0, 0, 0, 0},
    };
    static char log[1 << 16];
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
                           .insn_cnt = sizeof code / sizeof *code,
                           .log_size = sizeof log,
                           .log_level = 1};
    load.insns = (unsigned long)code;
    load.license = (unsigned long)"GPL";
    load.log_buf = (unsigned long)log;
    strcpy(load.prog_name, "other_agent");
    union bpf_attr attach = {.target_fd = cgroup(),
                             .attach_bpf_fd = bpf(BPF_PROG_LOAD, &load),
                             .attach_type = BPF_CGROUP_DEVICE,
                             .attach_flags = BPF_F_ALLOW_MULTI};
    bpf(BPF_PROG_ATTACH, &attach);
    return 0;
}
