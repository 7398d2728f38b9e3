#include "lapse/data/pieces.h"

#include "lapse/data/subword.h"
#include "lapse/data/t5_pieces.h"

namespace lapse {

std::shared_ptr<const Pieces> make_pieces(const Unit& unit, std::string model, const std::string& origin) {
  if (unit.normalised) return std::make_shared<T5Pieces>(std::move(model), origin);
  return std::make_shared<Subwords>(std::move(model), origin);
}

}  // namespace lapse
