// Configurations: each input is read as a TOML file and as the value of `--set`. What is accepted must be written so
// that it reads back to the same values.
#include "lapse/core/config.h"

#include "fuzz.h"
#include "lapse/data/config.h"
#include "lapse/rl/registry.h"
#include "lapse/tasks/registry.h"

namespace {

using lapse::field;
using lapse::Fields;
using lapse::Section;
using lapse::Sections;

/// The sections of a configuration that need no torch, and one with a field of every kind.
class AllKinds {
 public:
  AllKinds() {
    sections = {{"data", "", data_.fields()},
                {"kinds",
                 "",
                 {field("whole", whole_, "").in(-5, 99).unit("steps"), field("real", real_, "").in(0, 1e3),
                  field("any", any_, ""), field("truth", truth_, ""), field("text", text_, ""),
                  field("choice", choice_, "").one_of({"one", "two"}), field("file", file_, "").path(),
                  field("reals", reals_, "").in(0, 1), field("wholes", wholes_, "").in(1, 100)}}};
    for (const auto& entry : lapse::task_table()) tasks_.push_back(entry.options());
    for (const auto& entry : lapse::environment_table()) environments_.push_back(entry.options());
    for (auto& options : tasks_) sections.push_back({options->name(), "", options->fields()});
    for (auto& options : environments_) sections.push_back({options->name(), "", options->fields()});
  }
  void copy(const AllKinds& other) {
    for (size_t i = 0; i < sections.size(); ++i) lapse::copy_values(other.sections[i].fields, sections[i].fields);
  }

  Sections sections;

 private:
  lapse::DataConfig data_;
  int64_t whole_ = 1;
  double real_ = 0.5, any_ = 1;
  bool truth_ = false;
  std::string text_ = "text", choice_ = "one", file_;
  std::vector<double> reals_;
  std::vector<int64_t> wholes_;
  std::vector<std::unique_ptr<lapse::TaskOptions>> tasks_;
  std::vector<std::unique_ptr<lapse::EnvironmentOptions>> environments_;
};

/// Of what is written; each of the others is declared by the same means.
Sections first_two(const AllKinds& all) { return {all.sections.begin(), all.sections.begin() + 2}; }

template <class Read>
void check(const Read& read) {
  static const AllKinds defaults;
  static AllKinds now, again;
  now.copy(defaults);
  if (lapse::refused([&] { read(now.sections); })) return;
  static const Sections before = first_two(now), after = first_two(again);
  const std::string written = lapse::config_to_toml(before);
  again.copy(defaults);
  lapse::require(!lapse::refused([&] { lapse::parse_config(after, written, "again"); }), "refused", written);
  lapse::require(lapse::config_to_toml(after) == written, "read back to other values", written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lapse::as_text(data, size);
  check([&](const Sections& sections) { lapse::parse_config(sections, text, "input"); });
  check([&](const Sections& sections) { lapse::set_config(sections, text); });
  return 0;
}
