/* Runs a program under a seccomp filter: `refuse HOW CALL... -- PROGRAM ARGUMENTS`. HOW is an error's number, with which the
 * calls fail, or `kill`. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) {#name, SYS_##name}
static const struct {
  const char *name;
  int number;
} calls[] = {
    CALL(openat),        CALL(pread64),         CALL(writev),       CALL(mkdirat),      CALL(renameat),
    CALL(unlinkat),      CALL(newfstatat),      CALL(statx),        CALL(fstat),        CALL(fcntl),
    CALL(getdents64),    CALL(readlinkat),      CALL(madvise),      CALL(clone3),       CALL(clone),
    CALL(futex),         CALL(rt_sigpending),   CALL(prlimit64),    CALL(getrandom),    CALL(prctl),
    CALL(uname),         CALL(clock_gettime),   CALL(fchmod),       CALL(fchmodat),     CALL(rt_sigprocmask),
    CALL(gettid),        CALL(rt_sigtimedwait), CALL(munmap),       CALL(getppid),      CALL(sigaltstack),
    CALL(write),         CALL(sched_yield),     CALL(sched_getaffinity), CALL(faccessat), CALL(faccessat2),
    CALL(getpid),        CALL(lseek),           CALL(rseq),         CALL(set_robust_list), CALL(mprotect),
    CALL(fstatfs),       CALL(statfs),          CALL(ioctl),        CALL(fsync),        CALL(fdatasync),
    CALL(tgkill),        CALL(getcwd),          CALL(sysinfo),
#ifdef SYS_mkdir /* Not on arm64. */
    CALL(mkdir),         CALL(rename),          CALL(unlink),       CALL(stat),         CALL(readlink),
    CALL(access),        CALL(chmod),           CALL(lstat),        CALL(open),
#endif
};

int main(int count, char **arguments) {
  struct sock_filter filter[2 * 64 + 4];
  unsigned short length = 0;
  int place = 2;
  unsigned result = count > 1 && strcmp(arguments[1], "kill") == 0
                        ? SECCOMP_RET_KILL_PROCESS
                        : SECCOMP_RET_ERRNO | (unsigned)atoi(count > 1 ? arguments[1] : "1");
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (; place < count && strcmp(arguments[place], "--") != 0; place++) {
    int number = -1;
    for (size_t known = 0; known < sizeof calls / sizeof *calls; known++)
      if (strcmp(calls[known].name, arguments[place]) == 0) number = calls[known].number;
    if (number < 0 || length > 2 * 64) {
      fprintf(stderr, "refuse: %s: no such call here\n", arguments[place]);
      return 97;
    }
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, result);
  }
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  if (place + 1 >= count) return 97;
  struct sock_fprog program = {length, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
    fprintf(stderr, "refuse: no filter: %s\n", strerror(errno));
    return 98;
  }
  execvp(arguments[place + 1], arguments + place + 1);
  fprintf(stderr, "refuse: %s: %s\n", arguments[place + 1], strerror(errno));
  return 99;
}
