// RUN: not xdsl-opt %s -p 'pebble-schedule-connections{memory=2}' 2>&1 | filecheck %s --check-prefix MEMORY
// RUN: not xdsl-opt %s -p 'pebble-schedule-connections{policy=fifo}' 2>&1 | filecheck %s --check-prefix POLICY
// RUN: not xdsl-opt %s -p 'pebble-schedule-connections{proposals=-1}' 2>&1 | filecheck %s --check-prefix PROPOSALS

// MEMORY: pebble-schedule-connections: expected a fast memory of 3 values or more, got 2
// POLICY: pebble-schedule-connections: expected a policy of min, lru, got 'fifo'
// PROPOSALS: pebble-schedule-connections: expected 0 proposals or more, got -1
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}
