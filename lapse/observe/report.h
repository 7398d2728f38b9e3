// A record of memory as one HTML page that needs nothing else: it opens from the disk, without a network.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lapse/observe/contents.h"

namespace lapse {

struct ReportOptions {
  using Facts = std::vector<std::pair<std::string, std::string>>;

  std::string title;
  Facts facts;                ///< rows of the summary: name and value
  std::string configuration;  ///< shown as it is
};

/// What is shown beside a record: of another text.
struct ComparedRecord {
  const MemoryRecord& record;
  const Contents& contents;
  std::vector<int64_t> partner;  ///< of each step of the first record the same step here, or -1
};

/// The page: the text or the episodes, shaded by what each layer remembers of them, and the sizes of the memories.
std::string html_report(const MemoryRecord& record, const Contents& contents, const ReportOptions& options,
                        const ComparedRecord* other = nullptr);

/// The same as JSON for other programs: what the page's script gets (docs/analyses.md). Ends with a line end.
std::string json_report(const MemoryRecord& record, const Contents& contents, const ReportOptions& options,
                        const ComparedRecord* other = nullptr);

/// JSON that no text within it can break out of: for the inside of a <script> element.
std::string embeddable(std::string_view json);

}  // namespace lapse
