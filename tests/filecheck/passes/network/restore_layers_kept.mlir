// RUN: xdsl-opt %s -p pebble-restore-layers --split-input-file | filecheck %s

// No neuron is dropped: 3, which nothing reads, stays in the layer of its depth. A result that takes neurons of two layers
// reads both through connections of weight 1.
// CHECK-LABEL: @unread
func.func @unread(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK: %[[b:.*]] = pebble.constant dense<[5.000000e-01, 0.000000e+00]> : tensor<2xf32>
  // CHECK: %[[h:.*]] = pebble.linear %x, %{{.*}} bias %[[b]] : {{.*}} -> tensor<?x2xf32>
  // CHECK: %[[g:.*]] = pebble.linear %[[h]], %{{.*}} bias %{{.*}} : {{.*}} -> tensor<?x1xf32>
  // CHECK: %[[c:.*]] = pebble.concat %[[h]], %[[g]] axis 1
  // CHECK-NEXT: %[[w:.*]] = pebble.sparse_constant pointers dense<[0, 1, 2]> : tensor<3xi64> rows dense<[0, 2]> : tensor<2xi64> values dense<1.000000e+00>
  // CHECK-NEXT: %y = pebble.linear %[[c]], %[[w]]
  // CHECK-NEXT: func.return %y
  %y = pebble.network %x sources dense<[0, 1, 2]> : tensor<3xi64> targets dense<[2, 3, 4]> : tensor<3xi64> weights dense<[1.0, 2.0, 3.0]> : tensor<3xf32> biases dense<[0.5, 0.0, 0.0]> : tensor<3xf32> activations [] of dense<-1> : tensor<3xi64> outputs dense<[2, 4]> : tensor<2xi64> : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// What is no graph of neurons stays as it is.
// CHECK-LABEL: @layers
func.func @layers(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: %w = pebble.constant
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 3.0]]> : tensor<2x2xf32>
  // CHECK-NEXT: %h = pebble.linear %x, %w activation <relu> :
  %h = pebble.linear %x, %w activation <relu> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %y = pebble.softmax %h
  %y = pebble.softmax %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: func.return %y
  func.return %y : tensor<?x2xf32>
}
