// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

// CHECK: wavefront <runs dense<[0, 1]> : tensor<2xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2, 0]> : tensor<4xi64>>
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<[0, 1]> : tensor<2xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2, 0]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: neurons 0 and 2 are alive in slot 0 at the same time
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<[0, 1]> : tensor<2xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 0, 1]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: neuron 3 is computed before its source 2
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<0> : tensor<1xi64>, order dense<[3, 2]> : tensor<2xi64>, slots dense<[0, 1, 2, 3]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: output 3 is not in the order
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<0> : tensor<1xi64>, order dense<2> : tensor<1xi64>, slots dense<[0, 1, 2, -1]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: neuron 1 has no slot
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<0> : tensor<1xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, -1, 2, 3]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: 3 slots, expected one for each of 4 neurons
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<0> : tensor<1xi64>, order dense<[2, 3]> : tensor<2xi64>, slots dense<[0, 1, 2]> : tensor<3xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}

// -----

func.func @main(%x: tensor<?x2xf32>) {
  // CHECK: the order names a neuron twice, an input, or a neuron that does not exist
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> wavefront <runs dense<0> : tensor<1xi64>, order dense<[2, 2]> : tensor<2xi64>, slots dense<[0, 1, 2, 3]> : tensor<4xi64>> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return
}
