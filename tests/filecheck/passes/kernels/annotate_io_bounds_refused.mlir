// RUN: not xdsl-opt %s -p 'pebble-annotate-io-bounds{memory=2}' 2>&1 | filecheck %s --check-prefix MEMORY
// RUN: not xdsl-opt %s -p 'pebble-annotate-io-bounds{memory=3 policy=fifo}' 2>&1 | filecheck %s --check-prefix POLICY
// RUN: not xdsl-opt %s -p 'pebble-annotate-io-bounds{memory=3 batch_tile=0}' 2>&1 | filecheck %s --check-prefix TILE

// MEMORY: pebble-annotate-io-bounds: expected a fast memory of 3 values or more, got 2
// POLICY: pebble-annotate-io-bounds: expected a policy of min, lru, got 'fifo'
// TILE: pebble-annotate-io-bounds: expected a batch tile of 1 or more, got 0
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
