/*
 * `calls` with XRay's flight data recorder around it: to record calls however short (its default leaves out those under
 * 5 us), and to write its log, which it does only when told to. Declared here as in xray/xray_log_interface.h and
 * xray/xray_interface.h, which only C++ compilers read.
 */
#define main calls_main
#include "calls.c"
#undef main

extern int __xray_log_select_mode(const char *mode);
extern int __xray_log_init_mode(const char *mode, const char *options);
extern int __xray_log_finalize(void);
extern int __xray_log_flushLog(void);
extern int __xray_patch(void);

int main(int count, char **arguments)
{
    __xray_log_select_mode("xray-fdr");
    __xray_log_init_mode("xray-fdr", "buffer_size=16384:buffer_max=100:func_duration_threshold_us=0");
    __xray_patch();
    int status = calls_main(count, arguments);
    __xray_log_finalize();
    __xray_log_flushLog();
    return status;
}
