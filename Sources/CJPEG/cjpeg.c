// libjpeg reports damage as warnings, by number, and goes on with made-up pixels; and it ends on errors through a
// function that must not return. Both need C.
#include "cjpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>

typedef struct {
  struct jpeg_error_mgr base;
  jmp_buf leave;
  cjpeg_finding *finding;
} error_manager;

typedef struct {
  struct jpeg_progress_mgr base;
  int max_scans;
} progress_monitor;

static void settle(j_common_ptr info, cjpeg_outcome outcome) {
  error_manager *errors = (error_manager *)info->err;
  cjpeg_finding *finding = errors->finding;
  if (outcome <= finding->outcome) return;
  j_decompress_ptr decoder = (j_decompress_ptr)info;
  unsigned row = 0;
  // Rows come out as they are read; of a progressive picture none does before its scans were read.
  if (info->is_decompressor && decoder->output_height > 0)
    row = (unsigned)((unsigned long long)decoder->output_scanline * decoder->image_height / decoder->output_height);
  if (finding->outcome < CJPEG_GARBLED || row < finding->row) finding->row = row;
  finding->outcome = outcome;
  char text[JMSG_LENGTH_MAX];
  errors->base.format_message(info, text);
  snprintf(finding->message, sizeof finding->message, "%s", text);
}

static void give_up(j_common_ptr info) {
  settle(info, CJPEG_REFUSED);
  longjmp(((error_manager *)info->err)->leave, 1);
}

// Sorts libjpeg's warnings. Those not named speak of application segments, of bytes that nothing asked for, and of scan
// scripts that are unusual.
static void note(j_common_ptr info, int level) {
  if (level >= 0) return;
  info->err->num_warnings++;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF: settle(info, CJPEG_CUT_SHORT); break;
    case JWRN_HIT_MARKER: {
      // A restart marker too early is a gap; any other marker is the end of the data.
      int marker = info->is_decompressor ? ((j_decompress_ptr)info)->unread_marker : 0;
      settle(info, marker >= 0xD0 && marker <= 0xD7 ? CJPEG_GARBLED : CJPEG_CUT_SHORT);
      break;
    }
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL: settle(info, CJPEG_GARBLED); break;
    default: settle(info, CJPEG_ODD);
  }
}

static void watch(j_common_ptr info) {
  progress_monitor *monitor = (progress_monitor *)info->progress;
  if (!info->is_decompressor || ((j_decompress_ptr)info)->input_scan_number <= monitor->max_scans) return;
  error_manager *errors = (error_manager *)info->err;
  errors->finding->outcome = CJPEG_TOO_MANY_SCANS;
  longjmp(errors->leave, 1);
}

cjpeg_finding cjpeg_diagnose(const unsigned char *bytes, size_t length, int max_scans) {
  cjpeg_finding finding;
  memset(&finding, 0, sizeof finding);
  struct jpeg_decompress_struct info;
  error_manager errors;
  memset(&info, 0, sizeof info);
  memset(&errors, 0, sizeof errors);
  progress_monitor monitor;
  memset(&monitor, 0, sizeof monitor);
  monitor.max_scans = max_scans;
  monitor.base.progress_monitor = watch;
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = give_up;
  errors.base.emit_message = note;
  errors.finding = &finding;
  if (setjmp(errors.leave) == 0) {
    jpeg_create_decompress(&info);
    info.progress = &monitor.base;
    jpeg_mem_src(&info, bytes, length);
    jpeg_read_header(&info, TRUE);
    finding.height = info.image_height;
    // What is damaged shows at any size and in any colours, so the cheapest way out of the coefficients is taken.
    // max_memory_to_use stays as it is: libjpeg-turbo's memory manager would only fail earlier, and how much is needed
    // follows from the sides, which the caller has checked.
    info.out_color_space = info.jpeg_color_space;
    info.do_fancy_upsampling = FALSE;
    info.do_block_smoothing = FALSE;
    info.scale_num = 1;
    info.scale_denom = 8;
    jpeg_start_decompress(&info);
    // From libjpeg's own pool, which jpeg_destroy_decompress frees on every path.
    JSAMPARRAY row = (*info.mem->alloc_sarray)(
      (j_common_ptr)&info, JPOOL_IMAGE, info.output_width * (JDIMENSION)info.output_components, 1);
    while (info.output_scanline < info.output_height) jpeg_read_scanlines(&info, row, 1);
    // Reads on to the end marker, so that a missing one is noticed.
    jpeg_finish_decompress(&info);
  }
  jpeg_destroy_decompress(&info);
  return finding;
}
