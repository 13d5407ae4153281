// RUN: xdsl-opt %s -p pebble-choose-kernels --verify-diagnostics | filecheck %s

// CHECK: pebble-choose-kernels: the weight of node fc is no constant
func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x1xf32>) -> tensor<?x1xf32> {
  %y = pebble.linear %x, %w {pebble.node = "fc"} : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
