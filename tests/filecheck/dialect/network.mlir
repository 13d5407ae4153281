// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s

// Neurons 0 and 1 are inputs, 2 is relu(x0 + 2 x1 + 0.5), 3 is 3 times that.
// CHECK-LABEL: @plain
func.func @plain(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  // CHECK-NEXT: %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32> biases dense<[5.000000e-01, 0.000000e+00]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  func.return %y : tensor<?x1xf32>
}

// Two operands, two results, any leading axes, an order without counts.
// CHECK-LABEL: @shapes
func.func @shapes(%x: tensor<?x3x1xf32>, %z: tensor<?x3x1xf32>) -> (tensor<?x3x1xf32>, tensor<?x3x1xf32>) {
  // CHECK-NEXT: %y, %v = pebble.network %x, %z sources {{.*}} outputs dense<[3, 2]> : tensor<2xi64> order dense<[1, 0]> : tensor<2xi64> : (tensor<?x3x1xf32>, tensor<?x3x1xf32>) -> (tensor<?x3x1xf32>, tensor<?x3x1xf32>)
  %y, %v = pebble.network %x, %z sources dense<[0, 1]> : tensor<2xi64> targets dense<[2, 3]> : tensor<2xi64> weights dense<[1.0, 2.0]> : tensor<2xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [] of dense<-1> : tensor<2xi64> outputs dense<[3, 2]> : tensor<2xi64> order dense<[1, 0]> : tensor<2xi64> : (tensor<?x3x1xf32>, tensor<?x3x1xf32>) -> (tensor<?x3x1xf32>, tensor<?x3x1xf32>)
  func.return %y, %v : tensor<?x3x1xf32>, tensor<?x3x1xf32>
}
