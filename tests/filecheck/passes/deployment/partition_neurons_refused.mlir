// RUN: not xdsl-opt %s -p 'pebble-partition-neurons{parts=0}' 2>&1 | filecheck %s --check-prefix PARTS
// RUN: not xdsl-opt %s -p 'pebble-partition-neurons{imbalance=-0.5}' 2>&1 | filecheck %s --check-prefix IMBALANCE
// RUN: not xdsl-opt %s -p 'pebble-partition-neurons{proposals=-1}' 2>&1 | filecheck %s --check-prefix PROPOSALS
// RUN: not xdsl-opt %s -p 'pebble-partition-neurons' 2>&1 | filecheck %s --check-prefix WEIGHT

// PARTS: pebble-partition-neurons: expected 1 part or more, got 0
// IMBALANCE: pebble-partition-neurons: expected an imbalance of 0 or more, got -0.5
// PROPOSALS: pebble-partition-neurons: expected 0 or more proposals, got -1
// WEIGHT: pebble-partition-neurons: the weight of layer 'fc' is no constant
func.func @main(%x: tensor<?x2xf32>, %w: tensor<2x2xf32>) -> tensor<?x2xf32> {
  %y = pebble.linear %x, %w {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
