// RUN: xdsl-opt %s -p pebble-restore-layers | filecheck %s

// CHECK-LABEL: @main
func.func @main(%x: tensor<?x2xf32>) -> tensor<?x1xf32> {
  // CHECK-NEXT: %[[b:.*]] = pebble.constant dense<5.000000e-01> : tensor<1xf32>
  // CHECK-NEXT: %[[w:.*]] = pebble.sparse_constant pointers dense<[0, 2]> : tensor<2xi64> rows dense<[0, 1]> : tensor<2xi64> values dense<[1.000000e+00, 2.000000e+00]>
  // CHECK-NEXT: %[[h:.*]] = pebble.linear %x, %[[w]] bias %[[b]] activation <relu>
  // CHECK-NEXT: %[[c:.*]] = pebble.constant dense<0.000000e+00> : tensor<1xf32>
  // CHECK-NEXT: %[[v:.*]] = pebble.sparse_constant {{.*}} values dense<3.000000e+00>
  // CHECK-NEXT: %y = pebble.linear %[[h]], %[[v]] bias %[[c]] :
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 2, 3]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0]> : tensor<2xf32> activations [#pebble.activation<relu>] of dense<[0, -1]> : tensor<2xi64> outputs dense<3> : tensor<1xi64> : (tensor<?x2xf32>) -> tensor<?x1xf32>
  // CHECK-NEXT: func.return %y
  func.return %y : tensor<?x1xf32>
}
