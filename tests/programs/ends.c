/* A program that uses the GPU and ends as its argument says: `ends HOW`. */
#include "gpu.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static void handled(int signal) {
  (void)signal;
  static const char text[] = "handled\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(91);
  _exit(7);
}

static volatile sig_atomic_t seen;
static void noted(int signal) { seen = signal; }

static void *launches(void *unused) {
  (void)unused;
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  for (;;) {
    gpu_launch(20);
    gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  }
  return NULL;
}

static void *exits(void *unused) {
  (void)unused;
  usleep(200000);
  exit(5);
}

static void *outlives(void *unused) {
  (void)unused;
  usleep(100000);
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  gpu_work("the thread", 50);
  exit(0); /* The driver's own threads would keep the process for ever. */
}

/* A handler on a stack of its own, as runtimes have it, for a fault in ours. */
static void handle_on_a_small_stack(int signal) {
  static char stack[16384];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternate, NULL);
  struct sigaction action = {.sa_handler = handled, .sa_flags = SA_ONSTACK};
  sigaction(signal, &action, NULL);
}

/* At the program's end, when thread-local values are gone already. */
static void works_at_the_end(void) { gpu_work("at the end", 10); }

static void works_with_the_thread(void *unused) {
  (void)unused;
  gpu_work("with the thread", 10);
}

static void *ends_in_a_destructor(void *key) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  gpu_launch(1);
  pthread_setspecific(*(pthread_key_t *)key, key);
  return NULL;
}

static volatile int cancelled_is_here;

static void cleans_up(void *unused) {
  (void)unused;
  gpu_launch(1);
}

static void *launches_until_cancelled(void *how) {
  gpu_check(gpu_set_current(gpu_context), "cuCtxSetCurrent");
  pthread_cleanup_push(cleans_up, NULL);
  for (;;) {
    nvtx_push("until cancelled");
    gpu_launch(20);
    if (*(int *)how % 2) gpu_check(gpu_synchronize(), "cuCtxSynchronize");
    nvtx_pop();
    cancelled_is_here = 1;
    pthread_testcancel();
  }
  pthread_cleanup_pop(0);
  return NULL;
}

static pthread_t started(void *(*body)(void *)) {
  pthread_t thread;
  gpu_check(pthread_create(&thread, NULL, body, NULL), "pthread_create");
  return thread;
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
#define IS(name) (strcmp(how, name) == 0)
  struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (IS("atexit-before")) atexit(works_at_the_end);
  if (IS("segv-handled-before")) handle_on_a_small_stack(SIGSEGV);
  if (IS("term-blocked-before")) {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
  }
  gpu_start();
  gpu_work("worked", 100);
  if (IS("exit")) exit(3);
  if (IS("atexit")) atexit(works_at_the_end);
  if (IS("thread-destructor")) {
    pthread_key_t key;
    pthread_t thread;
    gpu_check(pthread_key_create(&key, works_with_the_thread), "pthread_key_create");
    gpu_check(pthread_create(&thread, NULL, ends_in_a_destructor, &key), "pthread_create");
    pthread_join(thread, NULL);
  }
  if (IS("cancelled")) {
    /* At any moment of its calls, asleep in one too. */
    for (int i = 0; i < 40; i++) {
      pthread_t thread;
      void *result;
      cancelled_is_here = 0;
      gpu_check(pthread_create(&thread, NULL, launches_until_cancelled, &i), "pthread_create");
      while (!cancelled_is_here) usleep(100);
      usleep(i * 37 % 1000);
      pthread_cancel(thread);
      pthread_join(thread, &result);
      gpu_check(result != PTHREAD_CANCELED, "pthread_cancel");
    }
    printf("cancelled\n");
    gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  }
  if (IS("_exit")) _exit(4);
  if (IS("quick_exit")) quick_exit(6);
  if (IS("abort")) abort();
  if (IS("term")) raise(SIGTERM);
  if (IS("kill")) raise(SIGKILL);
  if (IS("pipe")) raise(SIGPIPE);
  if (IS("interrupt")) raise(SIGINT);
  if (IS("segv")) *(volatile int *)0 = 1;
  if (IS("segv-handled")) {
    handle_on_a_small_stack(SIGSEGV);
    *(volatile int *)0 = 1;
  }
  if (IS("segv-handled-before")) *(volatile int *)0 = 1;
  if (IS("term-handled")) {
    signal(SIGTERM, handled);
    raise(SIGTERM);
  }
  if (IS("term-noted")) {
    /* Sent to the process, not to a thread: only threads of the program may take it. */
    struct sigaction action = {.sa_handler = noted};
    sigaction(SIGTERM, &action, NULL);
    kill(getpid(), SIGTERM);
    while (!seen) usleep(1000);
    printf("noted %d\n", (int)seen);
  }
  if (IS("term-blocked-before")) {
    /* The program waits for it in peace: no other thread may be there to die of it. */
    sigset_t term;
    int got = 0;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    kill(getpid(), SIGTERM);
    sigwait(&term, &got);
    printf("waited for %d\n", got);
  }
  if (IS("thread-exits")) {
    for (int i = 0; i < 3; i++) started(launches);
    started(exits);
    for (;;) pause();
  }
  if (IS("main-thread-ends")) {
    started(outlives);
    pthread_exit(NULL);
  }
  if (IS("returns-while-threads-launch")) {
    for (int i = 0; i < 3; i++) started(launches);
    usleep(100000);
  }
  return 0;
}
