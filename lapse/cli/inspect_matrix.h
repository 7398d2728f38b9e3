// `lapse inspect --matrix`: what each token does with each token before it, as JSON.
#pragma once

#include <string>

#include "lapse/cli/command.h"
#include "lapse/read/reader.h"

namespace lapse {

struct MatrixArguments {
  std::string what;  ///< empty: no matrix is asked for
  double min_fill = 0;
  int64_t documents = 1, layer = -1;
};

/// Declares --matrix, --documents, --min-fill and --layer.
void add_matrix(const Command& verb, MatrixArguments& arguments);

/// What is read, and how; `tokens`: of a block, 0: as in training.
struct MatrixReading {
  ReadingOptions options;
  std::string data, data_documents, split;
  int64_t tokens = 0;
};

/// Reads `documents` windows, documents or blocks of the run's text or task, and returns the file's text; empty if
/// Ctrl-C broke off. Error if the run acts in an environment.
std::string matrix_file(const Reader& reader, Transformer& model, const MatrixArguments& arguments,
                        const MatrixReading& reading);

}  // namespace lapse
