// RUN: xdsl-opt %s -p 'pebble-annotate-io-bounds{memory=3 batch_tile=64 policy=lru}' | filecheck %s

// W = 3 weights and 2 biases are single values, 2 inputs and 1 output are rows of 64: 5 + 64 * 3 = 197.
// CHECK-LABEL: @network
func.func @network(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  // CHECK-NEXT: %y = pebble.network %x {{.*}} bound <memory = 3, batch_tile = 64, policy = lru, transfers = 197 to 197, by "every value moves"> :
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// 4 weights and 2 biases. Beside a weight and an output there is room for one input, so that one is read twice in the
// best order: 6 + 64 * (3 + 2) = 326. The pull order reads both twice: 6 + 64 * 6.
// CHECK-LABEL: @layer
func.func @layer(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  // CHECK: %y = pebble.linear %x, %w io_bounds <reads = 8 to 10, writes = 2 to 2> bound <memory = 3, batch_tile = 64, policy = lru, transfers = 326 to 390, by "all orders of small parts"> :
  %y = pebble.linear %x, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
