#include "lapse/serve/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "lapse/data/utf8.h"

namespace lapse {
namespace {

const char* name_of(Gone why) {
  switch (why) {
    case Gone::expired:
      return "expired";
    case Gone::evicted:
      return "evicted";
    case Gone::begun:
      return "begun";
  }
  return "";
}

Json raised_json(const LiveRow& row) {
  Json all = Json::array();
  for (const auto& raise : row.raised)
    if (raise.by >= 0) all.push_back(raise.by), all.push_back(short_number(raise.amount));
  return all;
}

/// The comma before an element that is not the list's first.
void begin_element(std::string& text) {
  if (text.back() != '[') text += ',';
}

void write_numbers(std::string& text, c10::ArrayRef<double> values) {
  text += '[';
  for (const double x : values) begin_element(text), write_number(text, x);
  text += ']';
}

void write_changes(std::string& text, const std::vector<LayerChange>& changes) {
  text += '[';
  for (const auto& change : changes) {
    begin_element(text);
    fmt::format_to(std::back_inserter(text), "[{},", change.size);
    write_numbers(text, change.told);
    text += ",[";
    for (const auto& row : change.ended) {
      begin_element(text);
      fmt::format_to(std::back_inserter(text), "[{},{},\"{}\",", row.time, row.last, name_of(row.why));
      write_numbers(text, row.told);
      text += ",[";
      for (const auto& raise : row.raised) {
        if (raise.by < 0) continue;
        begin_element(text);
        fmt::format_to(std::back_inserter(text), "{},", raise.by);
        write_number(text, raise.amount);
      }
      text += "]]";
    }
    text += "]]";
  }
  text += ']';
}

/// How many bytes the character that begins with this byte has; 0: none begins so.
size_t length_of(unsigned char byte) {
  return byte < 0x80                   ? 1
         : byte >= 0xC2 && byte < 0xE0 ? 2
         : byte >= 0xE0 && byte < 0xF0 ? 3
         : byte >= 0xF0 && byte < 0xF5 ? 4
                                       : 0;
}

}  // namespace

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

Json short_number(double x) {
  if (!std::isfinite(x)) return nullptr;
  if (x == 0) return 0;
  return std::stod(fmt::format("{:.4g}", x));
}

void write_number(std::string& text, double x) {
  if (std::isfinite(x))
    fmt::format_to(std::back_inserter(text), "{:.4g}", x);
  else
    text += "null";
}

Json short_numbers(c10::ArrayRef<double> values) {
  Json all = Json::array();
  for (const double x : values) all.push_back(short_number(x));
  return all;
}

std::string with_lanes(std::string event, const std::vector<std::vector<LayerChange>>& lanes) {
  event.back() = ',';
  event += "\"lanes\":[";
  for (const auto& lane : lanes) begin_element(event), write_changes(event, lane);
  return event + "]}";
}

Json rows_json(const Stream& stream, const std::vector<std::vector<double>>& reads, int64_t time) {
  Json layers = Json::array();
  for (int64_t l = 0; l < std::ssize(reads); ++l) {
    Json layer = {{"reads", short_numbers(reads[l])}};
    if (const auto row = stream.find(l, time))
      layer["told"] = short_numbers(row->told), layer["raised"] = raised_json(*row);
    layers.push_back(std::move(layer));
  }
  return layers;
}

Json told_json(const Stream& stream, int64_t layers) {
  Json all = Json::array();
  for (int64_t l = 0; l < layers; ++l) {
    Json times = Json::array(), told = Json::array();
    for (size_t k = 0; k < stream.names().size(); ++k) told.push_back(Json::array());
    for (const auto& row : stream.live(l)) {
      times.push_back(row.time);
      for (size_t k = 0; k < row.told.size(); ++k) told[k].push_back(short_number(row.told[k]));
    }
    all.push_back({{"time", std::move(times)}, {"told", std::move(told)}});
  }
  return all;
}

Json lane_json(const Opened& opened, const LaneSettings& settings, const Stream& stream) {
  return {{"run", settings.run},
          {"name", opened.name},
          {"method", opened.reader.method->name()},
          {"asked", settings.method.value_or("")},
          {"options", settings.options},
          {"layers", opened.model->layers().size()},
          {"names", stream.names()}};
}

std::string Decoder::add(const std::string& piece) {
  open_ += piece;
  std::string text;
  size_t at = 0;
  while (at < open_.size()) {
    const size_t before = at;
    const auto byte = static_cast<unsigned char>(open_[at]);
    const size_t length = length_of(byte);
    if (char32_t code; next_code_point(open_, at, code)) {
      text += open_.substr(before, at - before);
      continue;
    }
    at = before;
    const std::string_view rest = std::string_view(open_).substr(at + 1);
    if (length > 1 + rest.size() && std::ranges::all_of(rest, continues_character)) break;
    text += fmt::format("\\x{:02X}", byte);
    ++at;
  }
  open_.erase(0, at);
  return text;
}

std::string Decoder::end() {
  std::string text;
  for (const unsigned char byte : open_) text += fmt::format("\\x{:02X}", byte);
  open_.clear();
  return text;
}

}  // namespace lapse
