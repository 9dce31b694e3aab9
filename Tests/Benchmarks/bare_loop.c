// The least that makes thumbnails with libvips: two threads, each taking the next file, thumbnail and save, nothing
// else. What a program adds to this in time is its own cost.
//
//   bare_loop WIDTH QUALITY OUT-FOLDER PICTURE…

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vips/vips.h>

enum { threads = 2 };

static int width, quality, count;
static const char *folder;
static char **pictures;
static atomic_int next_picture, failures;

static void make(const char *path) {
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  char target[4096];
  VipsImage *image = NULL;
  snprintf(target, sizeof target, "%s/%s", folder, name);
  // No bound on the height, as in `vipsthumbnail -s 800x`.
  if (vips_thumbnail(path, &image, width, "height", VIPS_MAX_COORD, NULL) ||
      vips_jpegsave(image, target, "Q", quality, "strip", TRUE, NULL)) {
    fprintf(stderr, "%s: %s", path, vips_error_buffer());
    atomic_fetch_add(&failures, 1);
  }
  if (image) g_object_unref(image);
}

static void *work(void *unused) {
  (void)unused;
  for (int i; (i = atomic_fetch_add(&next_picture, 1)) < count;) make(pictures[i]);
  vips_thread_shutdown();
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 5 || VIPS_INIT(argv[0])) return 2;
  width = atoi(argv[1]);
  quality = atoi(argv[2]);
  folder = argv[3];
  pictures = argv + 4;
  count = argc - 4;
  vips_concurrency_set(1);
  vips_cache_set_max(0);

  pthread_t pool[threads];
  for (int i = 0; i < threads; i++) pthread_create(&pool[i], NULL, work, NULL);
  for (int i = 0; i < threads; i++) pthread_join(pool[i], NULL);
  return atomic_load(&failures) ? 1 : 0;
}
