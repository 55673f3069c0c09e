/* plugin.c - variants from shared objects: template.c built as a plug-in and in the tree, and every refusal.
 * Each test is a separate process, so that registrations do not meet. */
#include "tests/support/core.h"
#include "tests/support/properties.h"

extern const attn_variant attn_variant_template; /* template.c, linked into this program */

static void properties_of(const char *name) {
  const attn_variant *variant = NULL;
  cr_assert_eq(attn_variant_find(name, &variant), ATTN_OK);
  cr_assert_eq(attn_variant_at(attn_variant_count() - 1), variant);
  int exact[PROPERTIES_MAX] = {0}, real[PROPERTIES_MAX] = {0};
  property_suite_run(properties_exact, variant, NULL, false, exact);
  property_suite_run(properties_real, variant, NULL, false, real);
  cr_assert(exact[0] > 0 && real[0] > 0);
}

Test(core_plugin, template_as_a_plugin) {
  size_t before = attn_variant_count();
  EXPECT_STATUS(attn_plugin_load(PLUGIN_DIR "/template.so"), ATTN_OK);
  cr_assert_eq(attn_variant_count(), before + 1);
  properties_of("template");
  EXPECT_STATUS(attn_plugin_load(PLUGIN_DIR "/template.so"), ATTN_OK); /* the same again */
  EXPECT(attn_variant_count() == before + 1);
}

Test(core_plugin, template_in_the_tree) {
  EXPECT_STATUS(attn_variant_register(&attn_variant_template), ATTN_OK);
  properties_of("template");
  EXPECT_STATUS(attn_variant_register(&attn_variant_template), ATTN_OK);
  EXPECT_STATUS(attn_plugin_load(PLUGIN_DIR "/template.so"), ATTN_EEXIST);
  EXPECT(strstr(attn_last_error(), "template") != NULL);
}

/* Both ways, the same bits. */
Test(core_plugin, both_builds_agree) {
  inputs in = inputs_shaped((case_shape){1, 2, 1, 50, 50, 9, 10, true, false}, ATTN_F32, 2, 1);
  EXPECT_STATUS(attn_plugin_load(PLUGIN_DIR "/template.so"), ATTN_OK);
  void *loaded = run_spec("template:block=8", NULL, &in);
  attn_variant renamed = attn_variant_template;
  renamed.name = "template_in_tree";
  EXPECT_STATUS(attn_variant_register(&renamed), ATTN_OK);
  void *linked = run_spec("template_in_tree:block=8", NULL, &in);
  expect_same_outputs(&in.problem, loaded, linked, "a plug-in and the same file in the tree");
}

static void expect_refused(const char *path, attn_status expected, const char *word) {
  size_t before = attn_variant_count();
  note_context("%s", path);
  EXPECT_STATUS(attn_plugin_load(path), expected);
  EXPECT(attn_variant_count() == before);
  if (!strstr(attn_last_error(), word))
    note_failure("message \"%s\" does not say \"%s\"", attn_last_error(), word);
}

Test(core_plugin, refusals) {
  expect_refused(PLUGIN_DIR "/bad_abi.so", ATTN_EABI, "bad_abi.so");
  expect_refused(PLUGIN_DIR "/bad_old.so", ATTN_EABI,
                 ".describe takes the place of .pattern, .features, .plan");
  expect_refused(PLUGIN_DIR "/bad_linked.so", ATTN_EABI,
                 ".describe takes the place of .pattern, .features, .plan");
  expect_refused(PLUGIN_DIR "/bad_size.so", ATTN_EABI, "bad_size.so");
  expect_refused(PLUGIN_DIR "/bad_duplicate.so", ATTN_EEXIST, "tiled");
  expect_refused(PLUGIN_DIR "/bad_name.so", ATTN_EINVAL, "name");
  expect_refused(PLUGIN_DIR "/bad_nameless.so", ATTN_EINVAL, "name");
  expect_refused(PLUGIN_DIR "/bad_incomplete.so", ATTN_EINVAL, "bad");
  expect_refused(PLUGIN_DIR "/bad_law.so", ATTN_EINVAL, "draws");
  expect_refused(PLUGIN_DIR "/bad_entry.so", ATTN_EABI, "attn_plugin");
  expect_refused(PLUGIN_DIR "/bad_null.so", ATTN_EABI, "bad_null.so");
  expect_refused(PLUGIN_DIR "/nosuch.so", ATTN_ENOTFOUND, "nosuch.so");
}

Test(core_plugin, files_that_are_no_shared_objects) {
  char path[] = "/tmp/attn-plugin-XXXXXX";
  int file = mkstemp(path);
  cr_assert(file >= 0);
  FILE *stream = fdopen(file, "w");
  cr_assert_not_null(stream);
  expect_refused(path, ATTN_ENOTFOUND, path);
  fputs("this is no ELF file\n", stream);
  fclose(stream);
  expect_refused(path, ATTN_ENOTFOUND, path);
  remove(path);
}

Test(core_plugin, search_path) {
  EXPECT_STATUS(attn_plugin_load_path(NULL), ATTN_OK);
  EXPECT_STATUS(attn_plugin_load_path(""), ATTN_OK);
  EXPECT_STATUS(attn_plugin_load_path("::"), ATTN_OK);
  size_t before = attn_variant_count();
  EXPECT_STATUS(attn_plugin_load_path(":" PLUGIN_DIR "/template.so:"), ATTN_OK);
  EXPECT(attn_variant_count() == before + 1);
  EXPECT_STATUS(attn_plugin_load_path("/nosuch.so:" PLUGIN_DIR "/template.so"), ATTN_ENOTFOUND);
}
