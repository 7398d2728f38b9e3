#include "lapse/observe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lapse/data/utf8.h"

namespace lapse {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPage =
#include "embedded/lapse/observe/report.html.inc"
    ;
constexpr std::string_view kStyle =
#include "embedded/lapse/observe/report.css.inc"
    ;
constexpr std::string_view kScript =
#include "embedded/lapse/observe/report.js.inc"
    ;

/// Four digits are more than a shade or a tooltip can show.
Json rounded(const std::vector<double>& values) {
  Json all = Json::array();
  for (const double x : values)
    all.push_back(std::isfinite(x) ? Json(std::stod(fmt::format("{:.4g}", x))) : Json(nullptr));
  return all;
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  return html;
}

/// The cells of every window or stream, each with the token that comes after it: [text, tokens that were read].
Json all_cells(const MemoryRecord& record, const Vocabulary& vocabulary) {
  const bool predicts_tokens = vocabulary.outputs() == vocabulary.size();
  Json all = Json::array();
  for (size_t w = 0; w < record.begins.size(); ++w) {
    const int64_t begin = record.begins[w];
    const int64_t end = w + 1 < record.begins.size() ? record.begins[w + 1] : std::ssize(record.tokens);
    std::vector<std::string> pieces;
    for (int64_t i = begin; i < end; ++i) pieces.push_back(vocabulary.decode(record.tokens[i]));
    if (record.ends[w] >= 0 && predicts_tokens) pieces.push_back(vocabulary.decode(record.ends[w]));
    int64_t left = end - begin;
    Json cells = Json::array();
    for (const auto& cell : cells_of(pieces)) {
      const int64_t read = std::min(cell.tokens, left);
      cells.push_back({cell.text, read});
      left -= read;
    }
    all.push_back(cells);
  }
  return all;
}

Json layers_of(const MemoryRecord& record) {
  Json layers = Json::array();
  for (const auto& layer : record.layers) {
    Json told = Json::object();
    for (const auto& [name, values] : layer.told) told[name] = rounded(values);
    layers.push_back({{"held", layer.held},
                      {"there", layer.there},
                      {"sizes", layer.sizes},
                      {"told", told},
                      {"mean", layer.mean()},
                      {"max", layer.largest()}});
  }
  return layers;
}

}  // namespace

std::vector<Cell> cells_of(const std::vector<std::string>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += piece;
  std::vector<Cell> cells;
  bool open = false;  // the last cell has bytes of a character that is not whole yet
  size_t at = 0, end = 0;
  for (const auto& piece : pieces) {
    end += piece.size();
    if (!open) cells.emplace_back();
    Cell& cell = cells.back();
    ++cell.tokens;
    while (at < end) {
      const size_t before = at;
      if (char32_t code; next_code_point(text, at, code))
        cell.text += text.substr(before, at - before);
      else
        cell.text += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[at++]));
    }
    open = at > end;
  }
  return cells;
}

// Outside its strings JSON has none of these characters.
std::string embeddable(std::string_view json) {
  std::string safe;
  for (const char c : json) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      safe += c;
  }
  return safe;
}

std::string html_report(const MemoryRecord& record, const Vocabulary& vocabulary, const ReportOptions& options) {
  const Json data = {
      {"title", options.title},       {"facts", options.facts},     {"configuration", options.configuration},
      {"bos", vocabulary.bos() >= 0}, {"begins", record.begins},    {"cells", all_cells(record, vocabulary)},
      {"nats", rounded(record.nats)}, {"layers", layers_of(record)}};
  // ASCII alone; what a title or a path has that is not UTF-8 is replaced.
  const std::string json = embeddable(data.dump(-1, ' ', true, Json::error_handler_t::replace));
  std::string page;
  const std::pair<std::string_view, std::string> parts[] = {{"{{title}}", escaped(options.title)},
                                                            {"{{style}}", std::string(kStyle)},
                                                            {"{{data}}", json},
                                                            {"{{script}}", std::string(kScript)}};
  std::string_view rest = kPage;
  for (const auto& [mark, text] : parts) {  // in the template's order: inserted text is not searched for marks
    const size_t place = rest.find(mark);
    page += rest.substr(0, place);
    page += text;
    rest.remove_prefix(place + mark.size());
  }
  return page += rest;
}

}  // namespace lapse
