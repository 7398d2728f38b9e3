#include "lapse/serve/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "lapse/observe/report.h"
#include "lapse/serve/failure.h"
#include "lapse/serve/http.h"
#include "lapse/serve/play.h"
#include "lapse/serve/text.h"

namespace lapse {
namespace {

ReportOptions describe(const Opened& opened) {
  ReportOptions report;
  report.title = "What " + opened.name + " remembers";
  report.facts = {{"checkpoint", opened.reader.checkpoint.path().string()}, {"method", opened.reader.method->name()}};
  for (const auto& [field, value] : opened.options) report.facts.emplace_back(flag_of(field), value);
  report.configuration = opened.reader.config().to_toml();
  return report;
}

/// The first lane; beside it the second, where both tell of as many layers by the same method.
class TextExport : public Export {
 public:
  explicit TextExport(const WatchedText& text) : tokens_(text.newest(kExported)) {
    for (const auto& lane : text.lanes()) {
      const bool fits = lanes_.empty() || (lane.layers() == text.lanes()[0].layers() &&
                                           lane.state().stream.names() == text.lanes()[0].state().stream.names());
      if (lanes_.size() < 2 && fits) lanes_.push_back(std::make_unique<One>(lane));
    }
  }

 protected:
  std::string advance() override {
    for (auto& lane : lanes_)
      lane->recorder.read(tokens_[at_], at_ + 1 < tokens_.size() ? tokens_[at_ + 1] : kUnscored);
    return ++at_ < tokens_.size() ? "" : page();
  }

 private:
  struct One {
    explicit One(const Lane& lane) : lane(lane), recorder(lane.model()) { recorder.restart(); }
    Lane lane;  // which keeps the model
    TextRecorder recorder;
  };

  std::string page() {
    std::vector<Contents> contents;
    for (auto& lane : lanes_) {
      lane->recorder.end_stream();
      contents.push_back(contents_of(lane->recorder.record, lane->lane.opened().reader.vocabulary()));
    }
    ReportOptions report = describe(lanes_[0]->lane.opened());
    report.facts.emplace_back("tokens read", fmt::format("{}", tokens_.size()));
    if (lanes_.size() == 1) return html_report(lanes_[0]->recorder.record, contents[0], report);
    for (auto& fact : describe(lanes_[1]->lane.opened()).facts)
      report.facts.emplace_back("B: " + fact.first, fact.second);
    std::vector<int64_t> same(tokens_.size());
    std::iota(same.begin(), same.end(), 0);
    const ComparedRecord other = {lanes_[1]->recorder.record, contents[1], std::move(same)};
    return html_report(lanes_[0]->recorder.record, contents[0], report, &other);
  }

  std::vector<int32_t> tokens_;
  std::vector<std::unique_ptr<One>> lanes_;
  size_t at_ = 0;
};

/// The first lane.
class PlayExport : public Export {
 public:
  explicit PlayExport(const Play& play)
      : opened_(play.opened()),
        played_(play.time()),
        steps_(std::min(played_, kExported)),
        how_(play.settings()),
        recorder_(*opened_->model, *opened_->reader.config().environment(), play.settings().seed,
                  play.settings().greedy) {}

 protected:
  std::string advance() override {
    recorder_.step();
    if (std::ssize(recorder_.record.steps) < steps_) return "";
    recorder_.finish();
    ReportOptions report = describe(*opened_);
    report.facts.emplace_back("environment", opened_->reader.config().task_name);
    report.facts.emplace_back("actions", how_.greedy ? "likeliest" : "drawn");
    report.facts.emplace_back("seed", fmt::format("{}", how_.seed));
    report.facts.emplace_back(
        "steps", steps_ == played_ ? fmt::format("{}", steps_) : fmt::format("the first {} of {}", steps_, played_));
    return html_report(recorder_.record, contents_of(recorder_.record, *opened_->reader.config().environment()),
                       report);
  }

 private:
  std::shared_ptr<const Opened> opened_;
  int64_t played_, steps_;
  PlaySettings how_;
  EpisodeRecorder recorder_;
};

}  // namespace

bool Export::turn() {
  std::string page;
  try {
    if (!cancelled_) page = advance();
  } catch (const std::exception& error) {
    status_ = 500;
    page = http_error(500, message_of(error)).body;
  }
  if (page.empty() && !cancelled_) return true;
  page_.put(page);
  page_.close();
  return false;
}

std::shared_ptr<Export> export_of(Subject& subject) {
  if (subject.time() == 0) throw Failure(409, "there is nothing to export yet");
  if (const auto* text = dynamic_cast<const WatchedText*>(&subject)) return std::make_shared<TextExport>(*text);
  return std::make_shared<PlayExport>(dynamic_cast<const Play&>(subject));
}

}  // namespace lapse
