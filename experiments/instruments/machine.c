/* machine.c - facts about the machine from /proc and /sys of Linux. A fact whose file is missing is
 * "unknown". */
#define _DEFAULT_SOURCE /* getloadavg */
#include "experiments/instruments/machine.h"

#include <fftw3.h>
#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <yaml.h>

#include "data/support/json_text.h"

#define UNKNOWN "unknown"

enum { TEXT_MAX = 8192 }; /* a line of CPU flags is about 2000 characters */

/* The first line of a file, without its end, or "unknown". */
static void first_line(const char *path, char *text, size_t size) {
  snprintf(text, size, "%s", UNKNOWN);
  FILE *file = fopen(path, "r");
  if (!file) return;
  if (!fgets(text, (int)size, file) || text[0] == '\n') snprintf(text, size, "%s", UNKNOWN);
  text[strcspn(text, "\n")] = '\0';
  fclose(file);
}

/* The value of the first "name : value" line of /proc/cpuinfo whose name is one of two, or "unknown". */
static void cpu_line(const char *name, const char *other, char *text, size_t size) {
  snprintf(text, size, "%s", UNKNOWN);
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file) return;
  char line[TEXT_MAX];
  while (fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (!colon || (strncmp(line, name, strlen(name)) != 0 && strncmp(line, other, strlen(other)) != 0))
      continue;
    char *value = colon + 1 + strspn(colon + 1, " \t");
    value[strcspn(value, "\n")] = '\0';
    snprintf(text, size, "%s", value);
    break;
  }
  fclose(file);
}

static void boost_state(char *text, size_t size) {
  first_line("/sys/devices/system/cpu/cpufreq/boost", text, size);
  if (strcmp(text, UNKNOWN) != 0) return;
  first_line("/sys/devices/system/cpu/intel_pstate/no_turbo", text, size);
  if (strcmp(text, UNKNOWN) != 0) snprintf(text, size, "%s", text[0] == '0' ? "1" : "0");
}

static void library_versions(char *text, size_t size) {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  snprintf(text, size, "%s; gsl %s; hdf5 %u.%u.%u; jansson %s; libyaml %s; openmp %d", fftw_version,
           gsl_version, major, minor, release, jansson_version_str(), yaml_get_version_string(), _OPENMP);
}

static const char *compiler(void) {
#if defined __clang__
  return "clang " __clang_version__;
#elif defined __GNUC__
  return "gcc " __VERSION__;
#else
  return UNKNOWN;
#endif
}

/* Sets a member, and clears *ok if that fails. Text from the system that is not UTF-8 becomes "unknown". */
static void put(json_t *facts, const char *name, const char *text, bool *ok) {
  json_t *value = json_string(text);
  json_put(facts, name, value ? value : json_string(UNKNOWN), ok);
}

void machine_processor(char *text, size_t size) { cpu_line("model name", "Model", text, size); }

json_t *machine_facts(void) {
  json_t *facts = json_object();
  if (!facts) return NULL;
  bool ok = true;
  char text[TEXT_MAX];
  put(facts, "compiler", compiler(), &ok);
  put(facts, "cflags", ATTNLAB_CFLAGS, &ok);
  machine_processor(text, sizeof text);
  put(facts, "cpu_model", text, &ok);
  cpu_line("flags", "Features", text, sizeof text);
  put(facts, "cpu_flags", text, &ok);
  json_put(facts, "n_cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)), &ok);
  first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text);
  put(facts, "governor", text, &ok);
  boost_state(text, sizeof text);
  put(facts, "boost", text, &ok);
  first_line("/sys/devices/system/cpu/smt/control", text, sizeof text);
  put(facts, "smt", text, &ok);
  first_line("/proc/sys/kernel/randomize_va_space", text, sizeof text);
  put(facts, "aslr", text, &ok);
  struct utsname system;
  const bool named = uname(&system) >= 0;
  snprintf(text, sizeof text, "%s %s %s", system.sysname, system.release, system.machine);
  put(facts, "kernel", named ? text : UNKNOWN, &ok);
  put(facts, "hostname", named ? system.nodename : UNKNOWN, &ok);
  library_versions(text, sizeof text);
  put(facts, "lib_versions", text, &ok);
  return json_whole(facts, ok);
}

double machine_load(void) {
  double load;
  return getloadavg(&load, 1) == 1 ? load : (double)NAN;
}

double machine_memory(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file) return 0;
  double kibibytes = 0;
  if (fscanf(file, "MemTotal: %lf", &kibibytes) != 1) kibibytes = 0;
  fclose(file);
  return kibibytes * 1024;
}
