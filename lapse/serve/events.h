// What the stream of a session says, as JSON.
#pragma once

#include <string>
#include <vector>

#include "lapse/observe/stream.h"
#include "lapse/serve/lane.h"
#include "lapse/serve/subject.h"

namespace lapse {

/// Milliseconds since 1970: when a step was computed.
int64_t now_ms();
/// Four digits: more than a shade or a table can show. NaN is null.
Json short_number(double x);
/// The same, at the end of a text: each token's event is written so, many times faster than by way of a Json.
void write_number(std::string& text, double x);
Json short_numbers(c10::ArrayRef<double> values);

/// The JSON of an event and of what it changed in each layer of its lanes: [rows read, [told of its own row], [rows
/// that went]], and each of these rows: [time, last time it could be read, why, [told last], [by, amount, ...]];
/// docs/serve.md says more.
std::string with_lanes(std::string event, const std::vector<std::vector<LayerChange>>& lanes);
/// Of the row of this time, layer by layer: {"reads": with what share each head reads it, "told": [...], "raised": [by,
/// amount, ...]}, the last two where it is still there.
Json rows_json(const Stream& stream, const std::vector<std::vector<double>>& reads, int64_t time);
/// Layers of {"time": [...], "told": [[...], ...]}, of all rows that are there.
Json told_json(const Stream& stream, int64_t layers);
/// {"run", "name", "method", "options", "layers", "names"}
Json lane_json(const Opened& opened, const LaneSettings& settings, const Stream& stream);

/// The characters that are whole once this token was read, and the bytes that begin another. Bytes that are none are
/// written \xNN.
class Decoder {
 public:
  std::string add(const std::string& piece);
  /// What is left of a character that never became whole.
  std::string end();

 private:
  std::string open_;
};

}  // namespace lapse
