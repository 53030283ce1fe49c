/* A program that works until it is told to end, and asks whether it could have CUPTI when it is told to: 't' on its standard
 * input has it subscribe, say the result in a line, and unsubscribe; 'q' ends it. */
#include "gpu.h"

static void called(void *data, int domain, unsigned id, const void *call) { (void)data; (void)domain; (void)id; (void)call; }

int main(void) {
  char word;
  gpu_start();
  fcntl(0, F_SETFL, O_NONBLOCK);
  void *cupti = dlopen("libcupti.so.12", RTLD_NOW);
  gpu_check(cupti == NULL, "libcupti.so.12");
  int (*subscribe)(void **, void *, void *) = dlsym(cupti, "cuptiSubscribe");
  int (*unsubscribe)(void *) = dlsym(cupti, "cuptiUnsubscribe");
  for (;;) {
    gpu_launch(5);
    gpu_check(gpu_synchronize(), "cuCtxSynchronize");
    usleep(5000);
    if (read(0, &word, 1) != 1) continue;
    if (word == 'q') break;
    if (word != 't') continue;
    void *subscriber = NULL;
    int result = subscribe(&subscriber, (void *)called, NULL);
    if (result == 0) unsubscribe(subscriber);
    printf("%d\n", result);
    fflush(stdout);
  }
  gpu_say("done");
  return 0;
}
